"""A client of HTTP/1.1 for load generators, as small as it can be: what it costs is measured, too.

It is one connection, which is made again after the server has closed it. To send and to take the
answer are two steps, so that one thread can have many. Answers have a length; streams are not for
this client.
"""

from __future__ import annotations

import select
import socket
from urllib.parse import urlsplit

_READ = 1 << 16


class Client:
    """Asks one server, one request after the other. Precondition of all but `send`: one was
    sent."""

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        self._to = found.hostname or "127.0.0.1", found.port or 80
        self._head = f"Host: {found.netloc}\r\n"
        self._socket: socket.socket | None = None
        self._come = b""
        """What has come of an answer."""

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request. Raises OSError."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n"
        self._come = b""
        try:
            self._connection().sendall(head.encode() + body)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """What can be read once something of the answer has come."""
        assert self._socket is not None
        return self._socket.fileno()

    def take(self) -> tuple[int, bytes] | None:
        """Wait for more of the answer. Returns its status and body once it is whole.

        Raises OSError.
        """
        assert self._socket is not None
        try:
            data = self._socket.recv(_READ)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._come += data
            return _answer_in(self._come)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connection(self) -> socket.socket:
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()  # nothing was asked: the server has closed it
        if self._socket is None:
            self._socket = socket.create_connection(self._to)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


def _answer_in(data: bytes) -> tuple[int, bytes] | None:
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        raise ConnectionError("an answer has no length")
    size = end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0])
    if len(data) < size:
        return None
    return int(head.split(b" ", 2)[1]), data[end + 4 : size]
