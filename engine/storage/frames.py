"""Frames: the content of log segments. Each has a checksum around its payload.

A frame is ``magic, checksum, length, durable`` and the payload. The checksum is over the place of
the frame, too (the number of its file, the offset): a frame fits nowhere else. `durable` is how
many bytes of the file were known to be durable when the frame was written. So a torn end, which a
crash may leave, is told from damage: a frame that cannot be read is damaged if a later one says
that it was durable, and torn if none does.

    >>> from io import BytesIO
    >>> frame = framed(b"payload", number=3, offset=0, durable=0)
    >>> payload_at(BytesIO(frame), number=3, offset=0, end=len(frame))
    b'payload'
    >>> payload_at(BytesIO(frame), number=4, offset=0, end=len(frame))
"""

from __future__ import annotations

from struct import Struct
from typing import BinaryIO
from zlib import crc32

_MAGIC = b"\xd7JNL"
_HEAD = Struct("<4sIIQ")
_PLACE = Struct("<QQIQ")

HEAD_BYTES = _HEAD.size
"""How much longer a frame is than its payload."""


def framed(payload: bytes, number: int, offset: int, durable: int) -> bytes:
    """The frame of a payload, for an offset in a file."""
    checksum = _checksum(payload, number, offset, durable)
    return _HEAD.pack(_MAGIC, checksum, len(payload), durable) + payload


def payload_at(file: BinaryIO, number: int, offset: int, end: int) -> bytes | None:
    """The payload of the frame at an offset, where the file stands; None if no whole one is there.

    `end`: the length of the file, or how much of it counts.
    """
    head = file.read(HEAD_BYTES) if offset + HEAD_BYTES <= end else b""
    if len(head) < HEAD_BYTES:
        return None
    magic, checksum, length, durable = _HEAD.unpack(head)
    if magic != _MAGIC or length > end - offset - HEAD_BYTES:
        return None
    payload = file.read(length)
    is_whole = len(payload) == length and checksum == _checksum(payload, number, offset, durable)
    return payload if is_whole else None


def was_durable(rest: bytes, number: int, offset: int) -> bool:
    """Whether what is at an offset was durable once, as one of the frames after it says.

    `rest`: the file from there on.
    """
    at = rest.find(_MAGIC, 1)
    while at >= 0:
        if at + HEAD_BYTES <= len(rest):
            _, checksum, length, durable = _HEAD.unpack_from(rest, at)
            payload = rest[at + HEAD_BYTES : at + HEAD_BYTES + length]
            is_frame = checksum == _checksum(payload, number, offset + at, durable)
            if is_frame and len(payload) == length and durable > offset:
                return True
        at = rest.find(_MAGIC, at + 1)
    return False


def _checksum(payload: bytes, number: int, offset: int, durable: int) -> int:
    return crc32(payload, crc32(_PLACE.pack(number, offset, len(payload), durable)))
