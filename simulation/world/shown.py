"""The text of messages in a trace."""

from __future__ import annotations

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import unpack
from driftline.engine.wire.messages import decode


def shown(data: bytes) -> str:
    """The text of an encoded message between parties, or between an intake and a producer."""
    try:
        header, message = decode(data)
    except MalformedMessage:
        return str(unpack(data))
    return f"[{header.incarnation}.{header.sequence}] {message}"
