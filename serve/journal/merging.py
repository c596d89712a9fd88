"""Merge the outputs of all barriers into label order.

Input: entries. Those of one barrier arrive in order; entries of several barriers may arrive in any
order. Output: spans. Invariants: spans are contiguous; each output is in the span that covers its
time; a span is in label order. So the items of all spans up to a time depend only on the flow and
its input.

A barrier covers a range of key groups. The outputs of a group are complete up to the largest t_last
of the barriers that cover the group: a rescaling moves groups to barriers with new numbers, which
continue where the previous barriers ended. T (`time`) is one more than the smallest of these t_last
over all groups, so T does not advance before every group is covered.

    >>> from driftline.engine.wire.bundles import to_blob
    >>> def entry(barrier, groups, t_last, *outputs):
    ...     blobs = tuple(to_blob([(time, 0)], 0, [value]) for time, value in outputs)
    ...     times = tuple(time for time, _ in outputs)
    ...     return JournalEntry(barrier, groups, t_last, 0, times, blobs)
    >>> merge = Merge(group_count=2)
    >>> merge.take(entry("barrier-0", (0, 0), 5, (1, "a"), (4, "d"))).span()
    Span(since=0, time=0, items=[])
    >>> span = merge.take(entry("barrier-1", (1, 1), 3, (2, "b"))).span()
    >>> span.time, [item.value for item in span.items]
    (4, ['a', 'b'])

Cost: blobs that wait for other barriers are kept as bytes. A blob that arrives while at most
`DECODED_BYTES_MAX` bytes wait is also kept as items, so it is not decoded a second time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.bundles import Item, from_blob, item_time
from driftline.serve.journal.entries import BEGINNING, JournalEntry, SegmentHeader

DECODED_BYTES_MAX = 1 << 22
"""While more bytes than this wait, newly received blobs are kept as bytes only, not as items."""

_by_label = attrgetter("label")


class Span(NamedTuple):
    """All outputs with label times in [since, time), in label order."""

    since: int
    time: int
    items: list[Item]

    def pieces(self, count: int) -> Iterator[Span]:
        """Split into contiguous spans of `count` outputs.

        Outputs of one time stay together, so a span may have more; the last one may have fewer.

        >>> span = Span(3, 400, [Item((time, 0), 0, "") for time in range(10, 140)])
        >>> [(piece.since, piece.time, len(piece.items)) for piece in span.pieces(64)]
        [(3, 74, 64), (74, 138, 64), (138, 400, 2)]
        """
        since, items, begin = self.since, self.items, 0
        while len(items) - begin > count:
            time = items[begin + count - 1].label[0] + 1
            end = bisect_left(items, time, begin, key=item_time)
            yield Span(since, time, items[begin:end])
            since, begin = time, end
        yield Span(since, self.time, items[begin:])


class Merge:
    """Merge of the outputs of barriers (example in the module's docstring).

    `group_count`: the number of key groups of the flow; `header`: the state to continue from.
    """

    def __init__(self, group_count: int, header: SegmentHeader = BEGINNING) -> None:
        self.time = header.time
        """T: `take` has returned all outputs below it."""
        self.last: dict[str, JournalEntry] = {}
        """Barrier -> its last entry; without outputs if the entry came from the header."""
        self.waiting_bytes = 0
        """Size of the blobs in `_waiting`."""
        self._complete = [-1] * group_count
        """Key group -> the time up to which its outputs are complete, inclusive; -1: none."""
        self._waiting: dict[str, deque[_Blob]] = {}
        """Barrier -> its blobs with times >= `time`, in order."""
        for entry in header.last:
            self._update_progress(entry)
        for entry in header.waiting:
            self._enqueue(entry)

    def check(self, entry: JournalEntry) -> None:
        """Raise MalformedMessage if the entry has outputs of a time that its barrier completed."""
        last = self.last.get(entry.barrier)
        least = max(self.time, 0 if last is None else last.t_last + 1)
        if entry.times and entry.times[0] < least:
            raise MalformedMessage(
                f"a bundle of {entry.barrier} with outputs of time {entry.times[0]}: all outputs "
                f"below {least} have already arrived"
            )

    def take(self, entry: JournalEntry, decoded: Sequence[list[Item]] = ()) -> CompletedOutputs:
        """Merge an entry, and return the outputs that are now complete: those below the new T.

        `decoded`: the items of each blob of the entry, if the caller has decoded them.
        """
        since = self.time
        self._enqueue(entry, decoded)
        self._update_progress(entry)
        self.time = max(since, min(self._complete) + 1)
        blobs = [blob for queue in self._waiting.values() for blob in _pop_below(queue, self.time)]
        self.waiting_bytes -= sum(len(blob.data) for blob in blobs)
        if self.waiting_bytes > DECODED_BYTES_MAX:
            for blob in islice(reversed(self._waiting[entry.barrier]), len(entry.blobs)):
                blob.items = None
        return CompletedOutputs(since, self.time, blobs)

    def header(self) -> SegmentHeader:
        """Return the state of the merge, as a header for the next segment."""
        waiting = (
            JournalEntry(
                *(barrier, queue[0].groups, 0, 0),
                tuple(blob.time for blob in queue),
                tuple(blob.data for blob in queue),
            )
            for barrier, queue in sorted(self._waiting.items())
            if queue
        )
        last = (entry.without_outputs() for _, entry in sorted(self.last.items()))
        return SegmentHeader(self.time, tuple(last), tuple(waiting))

    def _update_progress(self, entry: JournalEntry) -> None:
        self.last[entry.barrier] = entry
        first, last = entry.groups
        before = self._complete[first : last + 1]
        if max(before) <= entry.t_last:
            after = [entry.t_last] * len(before)
        else:
            after = [max(t_last, entry.t_last) for t_last in before]
        self._complete[first : last + 1] = after

    def _enqueue(self, entry: JournalEntry, decoded: Sequence[list[Item]] = ()) -> None:
        queue = self._waiting.setdefault(entry.barrier, deque())
        for number, (time, data) in enumerate(zip(entry.times, entry.blobs, strict=True)):
            items = decoded[number] if decoded else None
            queue.append(_Blob(time, entry.groups, data, items))
            self.waiting_bytes += len(data)


class _Blob(Struct):
    """The outputs of one time and one barrier."""

    time: int
    groups: tuple[int, int]
    """The first and the last key group of the barrier."""
    data: bytes
    items: list[Item] | None
    """The decoded outputs; None if `data` is not decoded."""


def _pop_below(queue: deque[_Blob], time: int) -> list[_Blob]:
    blobs = []
    while queue and queue[0].time < time:
        blobs.append(queue.popleft())
    return blobs


class CompletedOutputs:
    """The outputs with times in [since, time) that an entry completed; decoded by `span`."""

    def __init__(self, since: int, time: int, blobs: list[_Blob]) -> None:
        self.since = since
        self.time = time
        self._blobs = blobs

    def span(self, since: int = 0) -> Span:
        """Return the span of these outputs, decoded and sorted; leave out those below `since`."""
        # Labels are unique, except perhaps with a user's own source. This sort puts outputs with
        # equal labels into the order of key groups, whatever the order of the bundles.
        self._blobs.sort(key=lambda blob: (blob.time, blob.groups))
        items: list[Item] = []
        for blob in self._blobs:
            if blob.time >= since:
                items += from_blob(blob.data) if blob.items is None else blob.items
        items.sort(key=_by_label)
        return Span(max(self.since, since), self.time, items)
