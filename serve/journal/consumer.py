"""The journal: the consumer of all barriers of a run in label order.

Takes: bundles of all barriers. Gives: spans, to its followers at once, and to those who come later
(`read`); the last bundle of each barrier.
Invariants: what is stored is what a consumer stores, exactly once. Spans are forwarded before they
are stored: so storing costs no freshness. After a crash, or a write that has failed, the same spans
may be forwarded once more, as a replay makes the same items; a follower drops what it has, by its
time. What a follower keeps for later must not be ahead of what is stored, as code that has changed
meanwhile may make other items: so after `sync` it is kept if it is not ahead of `time`.

A directory belongs to one flow and one run, as those of other consumers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from driftline.connectors.sinks.commit_record import KEPT_BYTES, CommitRecord
from driftline.connectors.sinks.consumer import Last
from driftline.connectors.sinks.directory import OutputDirectory
from driftline.engine.durable import reported
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.storage.manifest import NOBODY, Mark
from driftline.engine.storage.segment_log import (
    SEGMENT_BYTES,
    SegmentLog,
    SegmentRemoved,
    StoredFrame,
    header_of,
    path_of,
)
from driftline.engine.wire.messages import Bundle
from driftline.serve.errors import RetentionExceeded
from driftline.serve.journal.entries import (
    BEGINNING,
    JournalEntry,
    SegmentHeader,
    decoded_header,
    entry_of,
    lacking,
)
from driftline.serve.journal.merging import Merge, Span

_CLAIM = "journal-0"
"""One process writes all of it."""


def identity_of(identity: str) -> str:
    """What the directory of a journal says of whose it is; `identity`: of flow and input."""
    return f"journal\n{identity}"


class Journal:
    """The journal in a directory. Not for several threads.

    Args:
        path: The directory; it is made if it is not there.
        flow: The flow whose outputs they are.
        identity: Whose outputs they are: of which flow, on which input.
        mark: Which run's they are, and how new.
        segment_bytes: From this size on a segment is full.

    Raises:
        StateMismatch: If the directory holds outputs of another identity, or damaged ones.
        Unavailable: If it cannot be written, or another process writes it.
    """

    def __init__(
        self,
        path: Path,
        flow: Flow,
        identity: str,
        mark: Mark = NOBODY,
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.followers: list[Callable[[Span], object]] = []
        """Who is given each span before it is stored. They do not call the journal."""
        self.path = path
        self._groups = flow.groups
        self._sinks = len(flow.sinks)
        self._claim = OutputDirectory(path, _CLAIM, identity_of(identity), "*", mark)
        try:
            self._log = SegmentLog(path, "journal", BEGINNING.encode(), segment_bytes)
            with reported("journal", path):
                self._starts = {number: self._header(number).time for number in self._log.numbers}
            """Number of each segment -> the time of its header, in order."""
        except BaseException:
            self._claim.close()
            raise
        self._merge: Merge | None = None
        """What has been merged; None if it has to be rebuilt from what is durable."""

    @property
    def time(self) -> int:
        """T: all outputs below it have been forwarded; and stored, after a `sync`."""
        return self._merged().time

    @property
    def oldest(self) -> int:
        """The outputs from this time on are retained."""
        return next(iter(self._starts.values()))

    def deliver(self, bundle: Bundle) -> None:
        """Forward what the bundle lets pass, and store it."""
        self.take(bundle)
        self.sync()

    def take(self, bundle: Bundle) -> None:
        """`deliver`, but durable only as `sync` says: one for many bundles."""
        if bundle.t_last <= self._last(bundle.barrier, bundle.groups).t_last:
            return
        merge = self._merged()
        entry, items = entry_of(bundle, self._groups, self._sinks)
        merge.check(entry)
        if self._log.is_full:
            self._log.sync()
            self._log.roll(merge.header().encode())
            self._starts[self._log.last] = merge.header().time
        try:
            passed = merge.take(entry, items)
            if passed.time > passed.since:
                span = passed.span()
                for follower in self.followers:
                    follower(span)
            self._log.append(entry.encode())
        except BaseException:
            self._merge = None
            raise

    def sync(self) -> dict[str, int]:
        """Make durable what has been taken.

        Returns:
            The t_last of each barrier. A bundle beyond it, though it was taken, is lost: a write
            has failed since.

        Raises:
            Unavailable: If a write fails now.
        """
        self._merged()
        self._log.sync()
        return {barrier: entry.t_last for barrier, entry in self._merged().last.items()}

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle; without its blobs if it is from before the segment of now."""
        self.sync()
        return self._last(barrier, groups)

    def read(self, since: int) -> Iterator[Span]:
        """What is stored, up to what is stored when the end is reached.

        Who then follows at once misses nothing.

        Args:
            since: The time to begin with.

        Yields:
            Spans, each beginning where the one before ends.

        Raises:
            NoLongerRetained: If outputs of that time are not retained any more.
            StateMismatch: If what is stored is damaged.
            Unavailable: If it cannot be read, or what was taken cannot be stored.
        """
        return (span for span in self.steps(since) if span is not None)

    def steps(self, since: int) -> Iterator[Span | None]:
        """`read` in small steps; None: one without a span, on the way to the time to begin with."""
        self._merged()
        if since < self.oldest:
            raise self._no_longer_retained()
        return self._spans(since, max(n for n, start in self._starts.items() if start <= since))

    def drop(self, retained_bytes: int, needed: int = INFINITY) -> None:
        """Remove whole segments until the others have so many bytes; the last one stays.

        `needed`: from this time on outputs are retained in any case. Raises Unavailable.
        """
        with reported("journal", self.path):
            sizes = {n: path_of(self.path, n).stat().st_size for n in self._starts}
        total = sum(sizes.values())
        for number, after in pairwise(list(self._starts)):
            if self._starts[after] > needed or total <= retained_bytes:
                break
            self._log.remove_oldest()
            del self._starts[number]
            total -= sizes[number]

    def close(self) -> None:
        """Close the files, and release the claim on them. What was taken is not synced."""
        self._log.close()
        self._claim.close()

    def _last(self, barrier: str, groups: tuple[int, int]) -> Last:
        entry = self._merged().last.get(barrier)
        if entry is None:
            return CommitRecord().of_groups(groups, str(self.path))
        is_small = sum(map(len, entry.blobs)) <= KEPT_BYTES
        last = Last(entry.t_last, entry.checksum, entry.blobs if is_small else ())
        return CommitRecord(entry.groups, last).of_groups(groups, str(self.path))

    def _merged(self) -> Merge:
        if self._merge is None or self._log.torn:
            self._log.cut()
            self._merge = self._rebuilt()
        return self._merge

    def _rebuilt(self) -> Merge:
        merge = Merge(self._groups)
        for frame in self._log.read(self._log.last):
            if frame.is_header:
                merge = Merge(self._groups, self._decoded(frame))
            else:
                merge.take(JournalEntry.decode(frame.payload))
        return merge

    def _spans(self, since: int, number: int) -> Iterator[Span | None]:
        merge: Merge | None = None
        for frame in self._frames(number):
            if frame.is_header:
                header = self._decoded(frame)
                if merge is not None and merge.header() != header:
                    raise lacking(self.path, header.time)
                merge = Merge(self._groups, header)
            elif merge is not None:
                passed = merge.take(JournalEntry.decode(frame.payload))
                yield passed.span(since) if passed.time > since else None
                since = max(since, passed.time)

    def _frames(self, number: int) -> Iterator[StoredFrame]:
        """The frames from a segment on, up to what has been written when the end is reached: it is
        made durable first."""
        offset = 0
        while True:
            try:
                for frame in self._log.read(number, offset):
                    yield frame
                    number, offset = frame.number, frame.end
            except SegmentRemoved:
                raise self._no_longer_retained() from None
            if self._log.torn or self._log.is_synced:
                return
            self._log.sync()

    def _header(self, number: int) -> SegmentHeader:
        return decoded_header(header_of(self.path, number), path_of(self.path, number))

    def _decoded(self, frame: StoredFrame) -> SegmentHeader:
        return decoded_header(frame.payload, path_of(self.path, frame.number))

    def _no_longer_retained(self) -> RetentionExceeded:
        return RetentionExceeded.by(f"the journal {self.path}", self.oldest)
