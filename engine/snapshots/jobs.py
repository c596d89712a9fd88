"""Jobs of a snapshot store, for example to write a part or to load a snapshot.

A part is incremental: it holds the rows that became final since the previous part, as one *segment*
(`engine.state.changelog`), in the order in which they became final. A later merge of parts splits
the rows by key group (`engine.snapshots.merging`).

`Capture` encodes the changelogs when a snapshot begins. A step takes about 0.1 ms, so the loop of
the node does not block.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

from msgspec import Struct

from driftline.engine.state.changelog import Changelog
from driftline.engine.wire.role import IOJob


class StoreSnapshot(IOJob, frozen=True):
    """Job: make a part durable. Result: None.

    `segments`: key group -> segment. In a part that a running node writes, the only key is
    `ALL_GROUPS`. `meta`: the node's metadata, which `Loaded` returns. `number`: the snapshot's
    number. `snapshot_incarnation`: the incarnation that takes the snapshot. A later incarnation may
    use the number again.
    """

    what: ClassVar[str] = "write its part of a snapshot"

    number: int
    segments: dict[int, bytes]
    meta: bytes
    snapshot_incarnation: int = 0


class LoadSnapshot(IOJob, frozen=True):
    """Job: load snapshot `number`, and remove all later parts. Result: `Loaded`.

    `number`: the snapshot's number; 0: remove all parts, and return empty state.
    `snapshot_incarnation`: the incarnation that took the snapshot. `allow_later`: load the newest
    snapshot instead, of any incarnation, and remove nothing. Raises SnapshotDamaged if the snapshot
    is damaged, missing, of another incarnation or, with `allow_later`, older than `number`.
    """

    what: ClassVar[str] = "load a snapshot"

    number: int
    snapshot_incarnation: int = 0
    allow_later: bool = False


class MergeParts(IOJob, frozen=True):
    """Job after the commit of snapshot `number`: merge parts up to snapshot `previous`.

    `previous`: the number of the previously committed snapshot; 0: none. Both snapshots stay
    loadable. `merge_all`: merge everything in this job; otherwise do one step, and the caller
    repeats the job. If a merge is in progress, continue it. Result: whether steps are left.
    """

    what: ClassVar[str] = "merge its parts of snapshots"

    number: int
    previous: int
    merge_all: bool = True


class Loaded(Struct, frozen=True):
    """Loaded snapshot: the metadata of its last part, all its segments in order, its number."""

    meta: bytes
    segments: list[bytes]
    number: int = 0


class ListParts(IOJob, frozen=True):
    """Job: list the segments of snapshot `number` that are not in snapshot `base` (0: list all).

    `snapshot_incarnation`, `base_incarnation`: the incarnations that took these two snapshots;
    `groups`: the first and the last key group needed; `requester`: the node that asks. Result:
    (part, key group, checksum) of each segment, in order; the key group may be `ALL_GROUPS`. Raises
    SnapshotDamaged if one of the two snapshots is missing, was merged into a later one, or is of
    another incarnation.
    """

    what: ClassVar[str] = "list its parts of snapshots for another node"

    requester: str
    number: int
    snapshot_incarnation: int
    base: int
    base_incarnation: int
    groups: tuple[int, int]


class ReadSlice(IOJob, frozen=True):
    """Job: read bytes of a segment, for node `requester`.

    Result: at most `size` bytes from `offset` on; b"" at the end of the segment, or if the segment
    no longer exists.
    """

    what: ClassVar[str] = "read its parts of snapshots for another node"

    requester: str
    part: int
    group: int
    offset: int
    size: int


class Vacate(IOJob, frozen=True):
    """Job: remove all parts, before the node receives parts of other nodes.

    `epoch`: the epoch of the master that requests it. Result: whether the parts were removed. If a
    later master has already vacated the store, nothing is removed: the store may contain new parts.
    """

    what: ClassVar[str] = "empty its state directory"

    epoch: int


ALL_GROUPS = 0xFFFE
"""Key group number of a segment that holds rows of all groups, in the order they became final."""


class Capture:
    """Encoder that turns the changelogs of operators into the segment of a part.

    First call `take` for each changelog, then `step` until it returns False.
    """

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        """`StoreSnapshot.segments`; complete once `step` returns False."""
        self._chunks: list[Iterator[bytes]] = []
        self._encoding = self._encode_chunks()

    def take(self, changelog: Changelog) -> None:
        """Empty an operator's changelog; its later changes belong to the next snapshot."""
        self._chunks.append(changelog.take())

    def step(self) -> bool:
        """Encode one chunk. Return False when `segments` is complete."""
        return next(self._encoding, False)

    def _encode_chunks(self) -> Iterator[bool]:
        chunks = []
        for chunk in chain.from_iterable(self._chunks):
            chunks.append(chunk)
            yield True
        if chunks:
            self.segments = {ALL_GROUPS: b"".join(chunks)}
