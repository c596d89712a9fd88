"""Snapshots: the jobs of a snapshot store, and what they carry.

A snapshot is incremental: it holds what changed since the one before, as *segments* of rows
(`engine.state.changelog`). What a node writes is one segment, in the order in which changes became
final; only when parts of the store are joined, which is not urgent, are its rows sorted by key
group (`engine.snapshots.merging`).

What is left to encode when a snapshot begins is encoded in small steps, so that the loop of a node
is never held up for longer than one step (about a tenth of a millisecond).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from driftline.engine.state.changelog import Changelog
from driftline.engine.wire.party import Job


@dataclass(frozen=True, slots=True)
class StoreSnapshot(Job):
    """Make segments and `meta` of snapshot `number` durable. Result: None.

    `taken`: the incarnation, as another one may take another snapshot of the same number.
    """

    number: int
    segments: dict[int, bytes]
    meta: bytes
    taken: int = 0


@dataclass(frozen=True, slots=True)
class LoadSnapshot(Job):
    """Forget snapshots after `number`, and load it, as it was `taken`. Result: `Loaded`.

    `or_later`: load the newest one instead, which has at least this number.
    """

    number: int
    taken: int = 0
    or_later: bool = False


@dataclass(frozen=True, slots=True)
class CommitSnapshot(Job):
    """Snapshot `number` is valid, and `before` is the valid one before it (0: none).

    Both stay loadable; parts up to `before` may be joined. Result: whether there is more to do.
    There is none if it is done as a `whole`; otherwise other jobs may be done in between.
    """

    number: int
    before: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot: the meta data of the last part, and the segments in the order to apply them."""

    meta: bytes
    segments: list[bytes]
    number: int = 0


MIXED = 0xFFFE
"""Instead of a key group: rows of all of them, in the order in which they became final."""


class Capture:
    """What operators have kept since the last snapshot, on its way into a segment.

    It is taken at once; to encode it takes many small steps.
    """

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self._taken: list[Iterator[bytes]] = []
        self._work = self._steps()

    def take(self, kept: Changelog) -> None:
        """Take what an operator has kept. What it keeps from now on is for the next snapshot."""
        self._taken.append(kept.take())

    def step(self) -> bool:
        """Do a little. Returns False when `segments` is complete."""
        return next(self._work, False)

    def _steps(self) -> Iterator[bool]:
        chunks = []
        for chunk in chain.from_iterable(self._taken):
            chunks.append(chunk)
            yield True
        if chunks:
            self.segments = {MIXED: b"".join(chunks)}
