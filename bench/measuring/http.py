"""A client of HTTP/1.1 for load generators, as small as it can be: what it costs is measured, too.

It is one connection, for one thread, which is made again after the server has closed it. Answers
have a length; streams are not for this client.
"""

from __future__ import annotations

import select
import socket
from urllib.parse import urlsplit

_READ = 1 << 16


class Client:
    """Asks one server, one request after the other."""

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        self._to = found.hostname or "127.0.0.1", found.port or 80
        self._head = f"Host: {found.netloc}\r\n"
        self._socket: socket.socket | None = None

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer. Raises OSError."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n"
        connection = self._connection()
        try:
            connection.sendall(head.encode() + body)
            return _answer(connection)
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


def _answer(connection: socket.socket) -> tuple[int, bytes]:
    data = connection.recv(_READ)
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _more(connection, data)
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        raise ConnectionError("an answer has no length")
    size = end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0])
    while len(data) < size:
        data += _more(connection, data)
    return int(head.split(b" ", 2)[1]), data[end + 4 : size]


def _more(connection: socket.socket, before: bytes) -> bytes:
    data = connection.recv(_READ) if before else b""
    if not data:
        raise ConnectionError("the server has closed the connection")
    return data
