"""Where a run called from Python leaves its outputs: an iterator, a list, a directory, LMDB."""

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
    """Outputs in LMDB, in a directory of their own; `driftline.engine.sinks.lmdb.read_items` gives
    them in label order."""

    path: str | Path


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run came to."""

    records: int
    """Records that this run has read."""
    outputs: int
    """What the output holds now: of this run, and of an earlier one that it went on from."""
    dead_letters: int
    """Elements that were set aside because a function failed."""
    bad_records: int
    """Records that were set aside because they could not be read."""
    seconds: float
    processes: bool
    """Whether nodes and master were processes; otherwise all was in the process of the caller."""


class Merged:
    """The consumer of all barriers, which gives items in label order as soon as they are final."""

    def __init__(self) -> None:
        self._records: dict[str, CommitRecord] = {}
        self._waiting: list[tuple[tuple[int, ...], int, Item]] = []
        """A heap of (label, number, item): of equal labels the first one comes first."""
        self._number = 0

    def deliver(self, bundle: Bundle) -> None:
        """Keep the items and the bundle."""
        if bundle.t_last <= self._of(bundle.barrier).last.t_last:
            return
        for item in items_of(bundle):
            self._number += 1
            heappush(self._waiting, (item.label, self._number, item))
        self._records[bundle.barrier] = CommitRecord.of(bundle)

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle of a barrier."""
        return self._of(barrier).of_groups(groups, f"the memory of {barrier}")

    def close(self) -> None:
        """Nothing to release."""

    def take(self, below: int) -> Iterator[Item]:
        """The items with times below this one, in label order; they are kept no longer."""
        while self._waiting and self._waiting[0][0][0] < below:
            yield heappop(self._waiting)[2]

    def _of(self, barrier: str) -> CommitRecord:
        return self._records.get(barrier, CommitRecord())


def consumers_in(output: Path | Lmdb, flow: Flow, identity: str) -> Callable[[str], Consumer]:
    """Gives the consumer of a barrier: JSON lines or LMDB."""
    if isinstance(output, Lmdb):
        path = Path(output.path).absolute()
        return lambda barrier: LmdbConsumer(path, barrier, flow, identity)
    return lambda barrier: JsonLinesConsumer(output, barrier, flow, identity)


def counted(output: Path | Lmdb) -> tuple[int, int]:
    """How many outputs and dead letters a place holds, while nobody writes."""
    if isinstance(output, Lmdb):
        sinks = [item.sink for item in read_items(Path(output.path))]
        failed = sinks.count(FAILURES)
        return len(sinks) - failed, failed
    return _lines(output, "*.jsonl"), _lines(output / DEAD_LETTERS, "[0-9]*.jsonl")


def _lines(directory: Path, pattern: str) -> int:
    return sum(_line_ends(file) for file in directory.glob(pattern))


def _line_ends(path: Path) -> int:
    with path.open("rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
