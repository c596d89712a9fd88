"""The HTTP of a connection, with a bound on the head of a request: its line and its headers.

The parser keeps what has come of a head until it is whole, however long that is.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 1 << 16
"""A head that is not whole after so many bytes is refused; what comes at once may be more."""

_TEXT = (
    b'{"error":{"code":"large","message":"the line and the headers of a request have more than '
    b'65536 bytes"}}'
)

_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_TEXT), _TEXT)
)


class BoundedHttp(HttpToolsProtocol):
    """A connection; invariant: no more than a bound, and one read, of a head is kept."""

    _head = 0
    """Bytes of the head that has begun."""
    _is_in_head = True

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head += len(data)
        super().data_received(data)
        if self._is_in_head and self._head > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._head, self._is_in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()
