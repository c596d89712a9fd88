"""Consumers for runs that are called from Python, and the summary of such a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic

from driftline.connectors.sinks import Consumer, JsonLinesConsumer, LmdbConsumer, MemoryConsumer
from driftline.connectors.sinks.lines import count_failures, count_lines
from driftline.connectors.sinks.lmdb import read_items
from driftline.deploy.roles.letters import DeadLetters
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item


@dataclass(frozen=True, slots=True)
class Lmdb:
    """A directory for outputs in LMDB. `driftline.connectors.sinks.lmdb.read_items` reads them in
    label order.

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
    """Elements that this call has set aside because a function failed."""
    bad_records: int
    """Records that this call has set aside because they could not be read."""
    seconds: float
    """How long the call took."""
    processes: bool
    """Whether nodes and master were processes of their own; otherwise all ran in the caller's."""


class MergingConsumer(MemoryConsumer):
    """A consumer in memory that gives items of all barriers in label order, and forgets them."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[tuple[int, ...], int, Item]] = []
        """(label, number, item); items with equal labels keep their order."""
        self._number = 0

    def _add(self, barrier: str, items: list[Item]) -> None:
        for item in items:
            self._number += 1
            heappush(self._heap, (item.label, self._number, item))

    def take(self, below: int) -> Iterator[Item]:
        """Remove the items with times below `below`, and give them in label order."""
        while self._heap and self._heap[0][0][0] < below:
            yield heappop(self._heap)[2]


def consumers_in(
    output: Path | Lmdb, flow: Flow, identity: str, letters: DeadLetters, dead_letters: bool
) -> Callable[[str], Consumer]:
    """A function that opens the consumer of a barrier, by its name: JSON lines or LMDB.

    `letters`: tells of the dead letters that are stored; `dead_letters`: whether failures are set
    aside.
    """
    if isinstance(output, Lmdb):
        path = Path(output.path).absolute()
        return lambda barrier: LmdbConsumer(path, barrier, flow, identity)

    def told(failures: Sequence[Item]) -> None:
        letters.failed(monotonic(), failures)

    return lambda barrier: JsonLinesConsumer(
        output, barrier, flow, identity, on_failures=told, dead_letters=dead_letters
    )


def count_outputs(output: Path | Lmdb) -> tuple[int, int]:
    """(outputs, dead letters) in a directory. Precondition: no process writes to it."""
    if isinstance(output, Lmdb):
        if not any(Path(output.path).glob("barrier-*")):
            return 0, 0
        sinks = [item.sink for item in read_items(Path(output.path))]
        failed = sinks.count(FAILURES)
        return len(sinks) - failed, failed
    return count_lines(output), count_failures(output)
