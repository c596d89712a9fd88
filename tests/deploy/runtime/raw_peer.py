"""Peer of a ZeroMQ socket that sends exactly the given bytes."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)

MORE, LONG, COMMAND = 1, 2, 4


def frame(body: bytes, flags: int = 0) -> bytes:
    """Encode a frame of ZMTP 3."""
    return head(len(body), flags | (LONG if len(body) > 255 else 0)) + body


def head(size: int, flags: int = LONG) -> bytes:
    """Encode the first bytes of a frame."""
    return bytes([flags]) + size.to_bytes(8 if flags & LONG else 1, "big")


READY = frame(b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER", COMMAND)


class Peer:
    """Connection to a ZeroMQ socket. A context manager."""

    def __init__(self, address: str, *, shaken: bool = True) -> None:
        """Connect; if `shaken`, complete the ZMTP handshake."""
        scheme, _, place = address.partition("://")
        if scheme == "ipc":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(place)
        else:
            host, _, port = place.rpartition(":")
            self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(10)
        if shaken:
            self.send(GREETING + READY)
            seen = b""
            while b"\x05READY" not in seen:
                data = self.socket.recv(4096)
                assert data, "closed during the handshake"
                seen += data

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def try_to_send(self, data: bytes) -> bool:
        """Return whether the other side accepts the bytes."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def is_closed(self) -> bool:
        """Read until the other side closes the connection; return False if it does not in time."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
