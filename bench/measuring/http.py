"""A client of HTTP/1.1 for load generators, as small as it can be: what it costs is measured, too.

Connections are kept and used again. A request never waits for one: if all are in use there is one
more, as an open loop demands. Answers have a length; streams are not for this client.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit


class Client:
    """Asks one server. For one asyncio loop."""

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        self._host, self._port = found.hostname or "127.0.0.1", found.port or 80
        self._head = f"Host: {found.netloc}\r\n"
        self._idle: list[_Connection] = []
        self.connections = 0
        """How many there are."""

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer. Raises OSError."""
        connection = await self._connection()
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n"
        answer = await connection.ask(head.encode() + body)
        self._idle.append(connection)
        return answer

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        loop = asyncio.get_running_loop()
        self.connections += 1
        _, made = await loop.create_connection(_Connection, self._host, self._port)
        return made

    def close(self) -> None:
        """Close the connections that are not in use."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.open = False
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.open = True

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        if at < 0:
            self._fail(ConnectionError("an answer has no length"))
            return
        length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        if len(self._data) < end + 4 + length:
            return
        status, body = int(head.split(b" ", 2)[1]), bytes(self._data[end + 4 : end + 4 + length])
        self._data.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((status, body))

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self._fail(error or ConnectionError("the server has closed the connection"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()
