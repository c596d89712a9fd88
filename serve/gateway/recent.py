"""The last outputs of a flow, for those who ask what came of a record soon after it was taken.

>>> recent = Recent(5)
>>> recent.add([Item((6, 0), 0, "a"), Item((6, 1), 0, "b"), Item((8, 0), 0, "c")])
>>> [item.value for item in recent.at(6) or ()], recent.at(7), recent.at(4)
(['a', 'b'], [], None)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile

from driftline.engine.wire.bundles import Item, item_time

ITEMS_MAX = 1_000
BYTES_MAX = 64 << 20


class Recent:
    """The outputs from a time on; a bounded number, and bytes, of the last ones are kept."""

    def __init__(self, since: int) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._since = since
        """All outputs from this time on are here."""

    def add(self, items: Sequence[Item]) -> None:
        """The next outputs, in label order."""
        for item in items:
            self._items.append(item)
            self._bytes += _size(item.value)
        while len(self._items) > ITEMS_MAX or self._bytes > BYTES_MAX:
            item = self._items.popleft()
            self._bytes -= _size(item.value)
            self._since = item.label[0] + 1

    def at(self, time: int) -> Sequence[Item] | None:
        """The outputs of a time that has passed; None: they are not known here."""
        if time < self._since:
            return None
        first = bisect_left(self._items, time, key=item_time)
        rest = islice(self._items, first, None)
        return list(takewhile(lambda item: item.label[0] == time, rest))


def _size(value: object) -> int:
    """About the bytes of a payload: large ones are texts or bytes, or tuples of them."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return sum(len(part) for part in parts if isinstance(part, str | bytes))
