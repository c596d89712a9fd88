"""Cursors: opaque texts that go on with the results of a search, as of the same T.

A cursor is bound to its query by a checksum over both. So one that is damaged, or is sent with
another query, is refused.

>>> cursor = Cursor(7, 3, 0.5, 2, None)
>>> text = encode(cursor, b"documents cat")
>>> decode(text, b"documents cat") == cursor
True
>>> decode(text, b"documents dog")  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
driftline.serve.errors.Refused: this is no cursor of this query: give it as it was received, ...
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from math import isfinite
from typing import NamedTuple

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import INFINITY
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import Refused

LENGTH_MAX = 4096
"""Characters of a cursor: a keyword by which results are sorted has 1024 bytes at most."""

_CHECK_BYTES = 8


class Cursor(NamedTuple):
    """`time`: the T of the results; `seen`: how many of them the client has; the score, the label
    time and the value of the last one."""

    time: int
    seen: int
    score: float
    label_time: int
    value: str | int | float | None


def encode(cursor: Cursor, query: bytes) -> str:
    """The text of a cursor. `query`: differs where results or their order do."""
    data = pack(tuple(cursor))
    return urlsafe_b64encode(_check(data, query) + data).rstrip(b"=").decode()


def decode(text: str, query: bytes) -> Cursor:
    """Decode `encode`. Raises Refused."""
    try:
        found = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        check, data = found[:_CHECK_BYTES], found[_CHECK_BYTES:]
        if check != _check(data, query):
            raise ValueError
        match unpack(data):
            case (
                int(time),
                int(seen),
                float(score),
                int(label_time),
                (None | str() | int() | float()) as value,
            ) if 0 <= time <= INFINITY and isfinite(score):
                return Cursor(time, seen, score, label_time, value)
    except (ValueError, MalformedMessage):
        pass
    raise Refused(
        "invalid",
        "this is no cursor of this query: give it as it was received, "
        "with the same q, sort and collection",
        {"parameter": "cursor"},
    )


def _check(data: bytes, query: bytes) -> bytes:
    key = blake2b(query, digest_size=32).digest()
    return blake2b(data, digest_size=_CHECK_BYTES, key=key).digest()
