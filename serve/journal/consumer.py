"""The journal: the consumer of all barriers of a run in label order.

Input: bundles of all barriers. Output: spans, which followers receive at once and `read` reads from
the files; the last bundle of each barrier, which the barrier requests during a recovery and if an
answer is overdue. Invariant: outputs are stored exactly once, as in any consumer.

The journal forwards a span before it stores it, so storing adds no latency. After a crash or a
failed write, barriers resend outputs, and the journal may forward them again. A replay produces the
same items, so a follower drops outputs below its T. But changed code may produce other items on
replay. So a follower persists only outputs below the `time` of the last successful `sync`.

A directory belongs to one flow and one run, as for other consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from driftline.connectors.sinks.commit_record import BLOB_BYTES_MAX, CommitRecord
from driftline.connectors.sinks.consumer import LastStored
from driftline.connectors.sinks.directory import OutputDirectory
from driftline.engine.durable import translate_os_errors
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.storage.ownership import NO_OWNER, DirectoryOwner
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
    decode_header,
    entry_of,
    gap_error,
)
from driftline.serve.journal.merging import Merge, Span

_CLAIM = "journal-0"
"""Name of the lock on the directory: only one process may write the journal."""


def identity_of(identity: str) -> str:
    """Return the identity of a journal's directory; `identity`: of the flow and its input."""
    return f"journal\n{identity}"


class Journal:
    """The journal in a directory. Not thread-safe.

    Args:
        path: The directory; it is created if missing.
        flow: The flow that produces the outputs.
        identity: The identity of flow and input.
        owner: The run that the outputs belong to, and its session.
        segment_bytes: Size at which the journal starts the next segment.

    Raises:
        StateMismatch: If the directory holds outputs of another identity, or damaged ones.
        Unavailable: If the directory cannot be written, or another process writes it.
    """

    def __init__(
        self,
        path: Path,
        flow: Flow,
        identity: str,
        owner: DirectoryOwner = NO_OWNER,
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.followers: list[Callable[[Span], object]] = []
        """Callbacks that get each span before it is stored. They must not call the journal."""
        self.path = path
        self._groups = flow.groups
        self._sink_count = len(flow.sinks)
        self._claim = OutputDirectory(path, _CLAIM, identity_of(identity), "*", owner)
        try:
            self._log = SegmentLog(path, "journal", BEGINNING.encode(), segment_bytes)
            with translate_os_errors("journal", path):
                numbers = self._log.numbers
                self._starts = {number: self._read_header(number).time for number in numbers}
            """Segment number -> the time in its header, oldest segment first."""
        except BaseException:
            self._claim.close()
            raise
        self._merge: Merge | None = None
        """The merge; None if it has to be rebuilt from the durable entries."""

    @property
    def time(self) -> int:
        """T: all outputs below it have been forwarded; after a `sync`, they are also stored."""
        return self._current_merge().time

    @property
    def oldest(self) -> int:
        """The smallest time from which all outputs are retained."""
        return next(iter(self._starts.values()))

    def deliver(self, bundle: Bundle) -> None:
        """Take and sync a bundle; it is durable when this returns.

        Raises MalformedMessage, StateMismatch, Unavailable.
        """
        self.take(bundle)
        self.sync()

    def take(self, bundle: Bundle) -> None:
        """Forward the outputs that a bundle completes, and write the bundle.

        `sync` makes the bundle durable. A bundle that the journal already has is ignored. Raises
        MalformedMessage, StateMismatch, Unavailable.
        """
        if bundle.t_last <= self._last(bundle.barrier, bundle.groups).t_last:
            return
        merge = self._current_merge()
        entry, items = entry_of(bundle, self._groups, self._sink_count)
        merge.check(entry)
        if self._log.is_full:
            self._log.sync()
            self._log.roll(merge.header().encode())
            self._starts[self._log.last] = merge.header().time
        try:
            completed = merge.take(entry, items)
            if completed.time > completed.since:
                span = completed.span()
                for follower in self.followers:
                    follower(span)
            self._log.append(entry.encode())
        except BaseException:
            self._merge = None
            raise

    def sync(self) -> dict[str, int]:
        """Make durable all bundles that `take` has written.

        Returns:
            The durable t_last of each barrier. A bundle that `take` has accepted, but whose t_last
            is larger, is lost: an earlier write or sync has failed. The barrier has to resend it.

        Raises:
            Unavailable: If this sync fails.
        """
        self._current_merge()
        self._log.sync()
        return {barrier: entry.t_last for barrier, entry in self._current_merge().last.items()}

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return a barrier's last bundle.

        Its blobs are left out if they are large. They are also left out if the bundle is in an
        earlier segment and, since then, the journal was restarted or a write failed. `groups`: the
        barrier's first and last key group. Raises StateMismatch if the stored bundle is of other
        key groups; Unavailable.
        """
        self.sync()
        return self._last(barrier, groups)

    def read(self, since: int) -> Iterator[Span]:
        """Read the stored spans, including those stored while the caller reads.

        Bundles that `take` has written are synced when the reader reaches them.
        A follower that is added to `followers` right after the last span misses no output.

        Args:
            since: The smallest label time to read.

        Yields:
            Spans, each beginning where the previous one ends.

        Raises:
            RetentionExceeded: If outputs from `since` on are no longer retained.
            StateMismatch: If the files are damaged.
            Unavailable: If the files cannot be read, or pending bundles cannot be stored.
        """
        return (span for span in self.read_by_bundle(since) if span is not None)

    def read_by_bundle(self, since: int) -> Iterator[Span | None]:
        """Read like `read`; yield None for a bundle that completes no time from `since` on."""
        self._current_merge()
        if since < self.oldest:
            raise self._no_longer_retained()
        return self._spans(since, max(n for n, start in self._starts.items() if start <= since))

    def drop(self, retained_bytes: int, needed_from: int = INFINITY) -> None:
        """Remove the oldest segments until the rest fits in `retained_bytes`; the last one stays.

        `needed_from`: keep all outputs from this time on, whatever their size. Raises Unavailable.
        """
        with translate_os_errors("journal", self.path):
            sizes = {n: path_of(self.path, n).stat().st_size for n in self._starts}
        total = sum(sizes.values())
        for number, next_number in pairwise(list(self._starts)):
            if self._starts[next_number] > needed_from or total <= retained_bytes:
                break
            self._log.remove_oldest()
            del self._starts[number]
            total -= sizes[number]

    def close(self) -> None:
        """Close the files and release the claim on them, without a sync."""
        self._log.close()
        self._claim.close()

    def _last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        entry = self._current_merge().last.get(barrier)
        if entry is None:
            return CommitRecord().last_for_groups(groups, str(self.path))
        is_small = sum(map(len, entry.blobs)) <= BLOB_BYTES_MAX
        last = LastStored(entry.t_last, entry.checksum, entry.blobs if is_small else ())
        return CommitRecord(entry.groups, last).last_for_groups(groups, str(self.path))

    def _current_merge(self) -> Merge:
        """Return the merge. After a failed write, first cut off all entries that are not durable.

        Raises Unavailable, StateMismatch.
        """
        if self._merge is None or self._log.torn:
            self._log.truncate_unsynced()
            self._merge = self._rebuild_merge()
        return self._merge

    def _rebuild_merge(self) -> Merge:
        merge = Merge(self._groups)
        for frame in self._log.read(self._log.last):
            if frame.is_header:
                merge = Merge(self._groups, self._decode_header(frame))
            else:
                merge.take(JournalEntry.decode(frame.payload))
        return merge

    def _spans(self, since: int, number: int) -> Iterator[Span | None]:
        merge: Merge | None = None
        for frame in self._frames(number):
            if frame.is_header:
                header = self._decode_header(frame)
                if merge is not None and merge.header() != header:
                    raise gap_error(self.path, header.time)
                merge = Merge(self._groups, header)
            elif merge is not None:
                completed = merge.take(JournalEntry.decode(frame.payload))
                yield completed.span(since) if completed.time > since else None
                since = max(since, completed.time)

    def _frames(self, number: int) -> Iterator[StoredFrame]:
        """Yield all frames from this segment on; sync to include frames that are not durable."""
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

    def _read_header(self, number: int) -> SegmentHeader:
        return decode_header(header_of(self.path, number), path_of(self.path, number))

    def _decode_header(self, frame: StoredFrame) -> SegmentHeader:
        return decode_header(frame.payload, path_of(self.path, frame.number))

    def _no_longer_retained(self) -> RetentionExceeded:
        return RetentionExceeded.of(f"the journal {self.path}", self.oldest)
