"""The limits of a record: whatever keeps them can travel, be stored, and be read again.

They are checked where a record enters, before anybody is told that it is stored: a record that is
found to be too large afterwards would stop every later start of the run.
"""

from __future__ import annotations

from collections.abc import Iterable

from driftline.engine.wire.codec import ATOMS, is_a, levels_of

RECORD_BYTES_MAX = 1 << 24
"""Bytes of an encoded record."""

RECORD_DEPTH_MAX = 100
"""Levels of nested sequences and dicts of a record; functions may nest it further."""


def why_refused(payload: object, size: int, *, of_producer: bool = False) -> str:
    """Why a record cannot be taken; empty if it can. `size`: its bytes in the wire format.

    `of_producer`: no key of a dict may be a sequence, as a front decodes records of strangers, see
    `engine.wire.codec.unpack_foreign`. Cost: one pass over the items of the record.
    """
    if size > RECORD_BYTES_MAX:
        return f"it has {size} bytes; a record has at most {RECORD_BYTES_MAX}"
    for depth, level in enumerate(levels_of((payload,), RECORD_DEPTH_MAX + 1)):
        if ATOMS.issuperset(map(type, level)):
            break
        if depth == RECORD_DEPTH_MAX:
            return f"it is nested more than {RECORD_DEPTH_MAX} deep"
        if of_producer and any(is_a(value, dict) and _has_sequences(value) for value in level):
            return "it has a dict with keys that are sequences; a producer sends none"
    return ""


def _has_sequences(keys: Iterable[object]) -> bool:
    return not ATOMS.issuperset(map(type, keys)) and any(isinstance(key, tuple) for key in keys)
