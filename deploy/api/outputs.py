"""Consumers for runs that are called from Python, and the summary of such a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from driftline.engine.flow.flow import Flow
from driftline.engine.order.steps import FAILURES
from driftline.engine.sinks import Consumer, JsonLinesConsumer, Last, LmdbConsumer
from driftline.engine.sinks.commit_record import CommitRecord
from driftline.engine.sinks.consumer import items_of
from driftline.engine.sinks.lines import DEAD_LETTERS
from driftline.engine.sinks.lmdb import read_items
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Bundle


@dataclass(frozen=True, slots=True)
class Lmdb:
    """A directory for outputs in LMDB. `driftline.engine.sinks.lmdb.read_items` reads them in label
    order.

    Args:
        path: The directory, for the outputs of one run alone.
    """

    path: str | Path


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Figures of a run that is over."""

    records: int
    """Records that this call has read."""
    outputs: int
    """Outputs in the list, directory or LMDB: of this call, and of interrupted earlier ones."""
    dead_letters: int
    """Elements set aside because a function failed."""
    bad_records: int
    """Records set aside because they could not be read."""
    seconds: float
    """How long the call took."""
    processes: bool
    """Whether nodes and master were processes of their own; otherwise all ran in the caller's."""


class MergingConsumer:
    """One consumer for all barriers, in memory: merges their items into label order."""

    def __init__(self) -> None:
        self._records: dict[str, CommitRecord] = {}
        self._items: list[tuple[tuple[int, ...], int, Item]] = []
        """A heap of (label, number, item); items with equal labels keep their order."""
        self._number = 0

    def deliver(self, bundle: Bundle) -> None:
        """Take the items of a bundle, unless they were taken before."""
        if bundle.t_last <= self._of(bundle.barrier).last.t_last:
            return
        for item in items_of(bundle):
            self._number += 1
            heappush(self._items, (item.label, self._number, item))
        self._records[bundle.barrier] = CommitRecord.of(bundle)

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle of a barrier."""
        return self._of(barrier).of_groups(groups, f"the memory of {barrier}")

    def close(self) -> None:
        """Nothing to release."""

    def take(self, below: int) -> Iterator[Item]:
        """Remove the items with times below `below`, and give them in label order."""
        while self._items and self._items[0][0][0] < below:
            yield heappop(self._items)[2]

    def _of(self, barrier: str) -> CommitRecord:
        return self._records.get(barrier, CommitRecord())


def consumers_in(output: Path | Lmdb, flow: Flow, identity: str) -> Callable[[str], Consumer]:
    """A function that opens the consumer of a barrier, by its name: JSON lines or LMDB."""
    if isinstance(output, Lmdb):
        path = Path(output.path).absolute()
        return lambda barrier: LmdbConsumer(path, barrier, flow, identity)
    return lambda barrier: JsonLinesConsumer(output, barrier, flow, identity)


def count_outputs(output: Path | Lmdb) -> tuple[int, int]:
    """(outputs, dead letters) in a directory. Precondition: no process writes to it."""
    if isinstance(output, Lmdb):
        sinks = [item.sink for item in read_items(Path(output.path))]
        failed = sinks.count(FAILURES)
        return len(sinks) - failed, failed
    return _lines(output, "*.jsonl"), _lines(output / DEAD_LETTERS, "[0-9]*.jsonl")


def _lines(directory: Path, pattern: str) -> int:
    return sum(_line_ends(file) for file in directory.glob(pattern))


def _line_ends(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
