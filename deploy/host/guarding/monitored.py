"""What the monitor of a ZeroMQ socket tells. `zmq.utils.monitor` would import asyncio, for which a
recovery would wait."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_EVENT = struct.Struct("=Hi")


def happened(told: Sequence[bytes]) -> tuple[int, int]:
    """(event, value) of a message of a monitor, whose second part is the address."""
    event, value = _EVENT.unpack(told[0])
    return event, value
