"""The jobs of a snapshot store: write a part, commit a snapshot, load one.

A part is incremental: it holds the rows that were final since the part before, as one *segment*
(`engine.state.changelog`), in the order in which they became final. When parts are merged, which is
not urgent, rows are sorted by key group (`engine.snapshots.merging`).

`Capture` encodes the changelogs when a snapshot begins. It does so in steps of about a tenth of a
millisecond, so that it never holds up the loop of the node for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from driftline.engine.state.changelog import Changelog
from driftline.engine.wire.party import DurableJob


@dataclass(frozen=True, slots=True)
class StoreSnapshot(DurableJob):
    """Make a part durable: `segments` by key group, and `meta`. Result: None.

    `number`: of the snapshot; `taken`: the incarnation, as a later one may take another snapshot
    with the same number.
    """

    what: ClassVar[str] = "write its part of a snapshot"

    number: int
    segments: dict[int, bytes]
    meta: bytes
    taken: int = 0


@dataclass(frozen=True, slots=True)
class LoadSnapshot(DurableJob):
    """Remove the parts after snapshot `number`, and load that snapshot. Result: `Loaded`.

    `taken`: the incarnation that took it; `or_later`: load the newest part instead, and remove
    nothing. Precondition then: the newest part has at least this number.
    """

    what: ClassVar[str] = "load a snapshot"

    number: int
    taken: int = 0
    or_later: bool = False


@dataclass(frozen=True, slots=True)
class CommitSnapshot(DurableJob):
    """Snapshot `number` is committed; `before`: the committed one before it (0: none).

    Both stay loadable; parts up to `before` may be merged. Result: whether there is more to merge.
    `whole`: merge everything in this job; otherwise a little, and the job is to be repeated.
    """

    what: ClassVar[str] = "merge its parts of snapshots"

    number: int
    before: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot as it is loaded: the meta data of its last part, and all segments, in order."""

    meta: bytes
    segments: list[bytes]
    number: int = 0


@dataclass(frozen=True, slots=True)
class ListParts(DurableJob):
    """Which segments hold what is in snapshot `number`, and not in snapshot `after` (0: none).

    `taken`, `after_taken`: the incarnations in which these were taken; `groups`: the first and the
    last key group that is needed; `to`: who asks. Result: (part, key group, checksum) of each, in
    order. Raises SnapshotDamaged if one
    of these snapshots is not there, or is a part of a joined one.
    """

    what: ClassVar[str] = "list its parts of snapshots for another node"

    to: str
    number: int
    taken: int
    after: int
    after_taken: int
    groups: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReadSlice(DurableJob):
    """Bytes of a segment, for `to`. Result: at most `size` bytes from `offset` on; none if the
    segment is not there any more."""

    what: ClassVar[str] = "read its parts of snapshots for another node"

    to: str
    part: int
    group: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Vacate(DurableJob):
    """Remove all parts, to get others from other nodes; the master of an epoch has asked for it.

    Result: whether that was done. A store that was vacated for a later master stays as it is: its
    parts may have become those of the run since.
    """

    what: ClassVar[str] = "empty its state directory"

    epoch: int


MIXED = 0xFFFE
"""Stands for all key groups: a segment with rows in the order in which they became final."""


class Capture:
    """The changelogs of operators, on their way into the segment of a part.

    `take` takes them at once, `step` encodes a little of them.
    """

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self._taken: list[Iterator[bytes]] = []
        self._work = self._steps()

    def take(self, changelog: Changelog) -> None:
        """Empty an operator's changelog: its later changes are for the next snapshot."""
        self._taken.append(changelog.take())

    def step(self) -> bool:
        """Encode one chunk. Returns False when `segments` is complete."""
        return next(self._work, False)

    def _steps(self) -> Iterator[bool]:
        chunks = []
        for chunk in chain.from_iterable(self._taken):
            chunks.append(chunk)
            yield True
        if chunks:
            self.segments = {MIXED: b"".join(chunks)}
