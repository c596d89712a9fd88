"""Jobs of a snapshot store: write a part, commit a snapshot, load one.

A part is incremental: it holds the rows that became final since the previous part, as one *segment*
(`engine.state.changelog`), in the order in which they became final. A later merge of parts, which
is not urgent, sorts rows by key group (`engine.snapshots.merging`).

`Capture` encodes the changelogs when a snapshot begins, in steps of about 0.1 ms, so that it does
not block the loop of the node for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

from msgspec import Struct

from driftline.engine.state.changelog import Changelog
from driftline.engine.wire.role import DurableJob


class StoreSnapshot(DurableJob, frozen=True):
    """Job: make a part durable. Result: None.

    `segments`: key group -> segment; a part that a node writes has only the key `ALL_GROUPS`.
    `meta`: the part's metadata. `number`: the snapshot's number, unique only within
    `snapshot_incarnation`: a later incarnation may reuse it.
    """

    what: ClassVar[str] = "write its part of a snapshot"

    number: int
    segments: dict[int, bytes]
    meta: bytes
    snapshot_incarnation: int = 0


class LoadSnapshot(DurableJob, frozen=True):
    """Job: remove the parts after snapshot `number`, and load that snapshot. Result: `Loaded`.

    `snapshot_incarnation`: the incarnation that took it. `allow_later`: load the newest
    snapshot instead, and remove nothing. Raises SnapshotDamaged, also if the snapshot is missing,
    of another incarnation or, with `allow_later`, older than `number`.
    """

    what: ClassVar[str] = "load a snapshot"

    number: int
    snapshot_incarnation: int = 0
    allow_later: bool = False


class MergeParts(DurableJob, frozen=True):
    """Job, once snapshot `number` is committed: merge the parts up to the snapshot before it.

    `previous`: the number of the previously committed snapshot; 0: none. Both snapshots stay
    loadable, because only parts up to `previous` are merged. `merge_all`: merge everything in this
    job; otherwise do one step, and the caller repeats the job. Result: whether steps are left.
    """

    what: ClassVar[str] = "merge its parts of snapshots"

    number: int
    previous: int
    merge_all: bool = True


class Loaded(Struct, frozen=True):
    """Loaded snapshot: its number, the metadata of its last part, and all segments, in order."""

    meta: bytes
    segments: list[bytes]
    number: int = 0


class ListParts(DurableJob, frozen=True):
    """Job: list the segments of snapshot `number` that are not in snapshot `base` (0: list all).

    `snapshot_incarnation`, `base_incarnation`: the incarnations that took these two snapshots;
    `groups`: the first and the last key group needed; `requester`: the node that asks. Result:
    (part, key group, checksum) of each segment, in order. Raises SnapshotDamaged if one of these
    snapshots is missing or was merged into another.
    """

    what: ClassVar[str] = "list its parts of snapshots for another node"

    requester: str
    number: int
    snapshot_incarnation: int
    base: int
    base_incarnation: int
    groups: tuple[int, int]


class ReadSlice(DurableJob, frozen=True):
    """Job: read bytes of a segment, for node `requester`.

    Result: at most `size` bytes from `offset` on; b"" if the segment no longer exists.
    """

    what: ClassVar[str] = "read its parts of snapshots for another node"

    requester: str
    part: int
    group: int
    offset: int
    size: int


class Vacate(DurableJob, frozen=True):
    """Job: remove all parts, before the node receives those of other nodes.

    `epoch`: the epoch of the master that requests it. Result: whether the parts were removed. A
    request of an earlier master is ignored once a later master has vacated the store, which may
    already hold new parts.
    """

    what: ClassVar[str] = "empty its state directory"

    epoch: int


ALL_GROUPS = 0xFFFE
"""Key group number of a segment that holds rows of all groups, in the order they became final."""


class Capture:
    """Encoder of operators' changelogs into the segment of a part.

    `take` empties a changelog at once; `step` encodes one chunk.
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
