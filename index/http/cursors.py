"""The cursors of a search: they go on with its results, as of the same T; see `serve.http.cursors`.

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

from math import isfinite
from typing import NamedTuple

from driftline.engine.labels import INFINITY
from driftline.serve.http.reads.cursors import opened, refusal, sealed

LENGTH_MAX = 4096
"""Characters of a cursor: a keyword by which results are sorted has 1024 bytes at most."""

_SAME = "q, sort and collection"


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
    return sealed(tuple(cursor), query)


def decode(text: str, query: bytes) -> Cursor:
    """Decode `encode`. Raises Refused."""
    match opened(text, query, _SAME):
        case (
            int(time),
            int(seen),
            float(score),
            int(label_time),
            (None | str() | int() | float()) as value,
        ) if 0 <= time <= INFINITY and isfinite(score):
            return Cursor(time, seen, score, label_time, value)
    raise refusal(_SAME)
