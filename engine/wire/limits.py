"""The limits of a record: whatever keeps them can travel, be stored, and be read again.

They are checked where a record enters, before anybody is told that it is stored: a record that is
found to be too large afterwards would stop every later start of the run.
"""

from __future__ import annotations

from itertools import chain

RECORD_BYTES_MAX = 1 << 24
"""Bytes of an encoded record."""

RECORD_DEPTH_MAX = 100
"""Levels of nested sequences and dicts of a record; functions may nest it further."""

_CONTAINERS = (dict, list, tuple)


def why_refused(payload: object, size: int) -> str:
    """Why a record cannot be taken; empty if it can. `size`: its bytes in the wire format."""
    if size > RECORD_BYTES_MAX:
        return f"it has {size} bytes; a record has at most {RECORD_BYTES_MAX}"
    if _is_deeper(payload, RECORD_DEPTH_MAX):
        return f"it is nested more than {RECORD_DEPTH_MAX} deep"
    return ""


def _is_deeper(value: object, levels: int) -> bool:
    """Whether a value has containers on more than so many levels. Cost: one pass over its items."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(levels):
        if not level:
            return False
        level = [
            inner
            for each in level
            for inner in (chain(each, each.values()) if isinstance(each, dict) else each)
            if isinstance(inner, _CONTAINERS)
        ]
    return bool(level)
