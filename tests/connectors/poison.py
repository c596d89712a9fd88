"""Rejected records: too large, too deeply nested, or with values that cannot be encoded."""

from __future__ import annotations

from driftline.engine.wire.codec import RECORD_BYTES_MAX

LARGE = "x" * (RECORD_BYTES_MAX + 1)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


POISON: dict[str, object] = {
    "large": {"id": 2, "text": LARGE},
    "deep": {"id": 2, "text": nested(100)},
    "deeper": {"id": 2, "text": nested(700)},
    "an int of 100 bits": {"id": 2, "text": 1 << 100},
}
