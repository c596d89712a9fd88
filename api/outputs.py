"""Consumers and summary of runs that are started from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic

from msgspec import Struct

from driftline.connectors.outputs import RecordingConsumer, open_consumer, resolve_output
from driftline.connectors.sinks import Consumer, MemoryConsumer
from driftline.connectors.sinks.consumer import SinkContext
from driftline.connectors.sinks.recorded import RecordedSink
from driftline.deploy.roles.consumer import DeadLetters
from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.wire.bundles import Item


class RunSummary(Struct, frozen=True):
    """Figures of a run that has ended."""

    records: int
    """Records that this call has read."""
    outputs: int
    """Delivered outputs, without dead letters. If nodes were processes or the outputs are in a
    directory, outputs of earlier interrupted calls are included."""
    dead_letters: int
    """Elements that this call set aside because a function failed."""
    bad_records: int
    """Records that this call set aside because they could not be read."""
    late_elements: int
    """Late elements, made of the records of this call, that no sink receives."""
    seconds: float
    """Duration of the call."""
    processes: bool
    """Whether nodes and master were separate processes; if not, they ran in the caller's."""


class MergingConsumer(MemoryConsumer):
    """Consumer in memory that merges the items of all barriers in label order."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[tuple[int, ...], int, Item]] = []
        """(label, sequence number, item): items with equal labels stay in order."""
        self._number = 0

    def _add(self, barrier: str, items: list[Item]) -> None:
        for item in items:
            self._number += 1
            heappush(self._heap, (item.label, self._number, item))

    def take(self, below: int) -> Iterator[Item]:
        """Remove all items with times below `below`, and yield these in label order."""
        while self._heap and self._heap[0][0][0] < below:
            yield heappop(self._heap)[2]


class ConsumerOpener:
    """Opens and counts the consumers of a run in this process, one for each barrier.

    Args:
        output: The path of a directory, the address of a sink, or a `Consumer` for all barriers.
        flow: The flow.
        identity: The identity of the run.
        dead_letters: Whether failures become dead letters.
    """

    def __init__(
        self, output: str | Path | Consumer, flow: Flow, identity: str, dead_letters: bool
    ) -> None:
        if isinstance(output, type):
            name = output.__name__
            raise FlowError(f"output: {name} is a class; give an object: {name}(...)")
        self.directory: Path | None = None
        """The directory of the outputs; None if they go elsewhere."""
        self.dead_letter_location = type(output).__name__
        """Description, for log lines, of where dead letters are stored."""
        self._sink, self._address = output, self.dead_letter_location
        if isinstance(output, str | Path):
            place = resolve_output(str(output), Path())
            self._address, self.dead_letter_location = place.address, place.dead_letter_location
            if place.is_directory:
                self.directory = place.directory.absolute()
        self.letters = DeadLetters(self.dead_letter_location)
        """Logger of the dead letters that consumers store."""
        self._context_arguments = flow, identity, dead_letters
        self._open: list[RecordingConsumer] = []
        self._failures_before = 0
        """Number of dead letters that the consumers had when they were opened."""

    def open(self, barrier: str) -> Consumer:
        """Open the consumer of a barrier."""
        flow, identity, dead_letters = self._context_arguments
        context = SinkContext(
            flow, barrier, dead_letters, self.directory, identity, on_failures=self._log_failures
        )
        if isinstance(self._sink, str | Path):
            opened: RecordingConsumer = open_consumer(self._address, context)
        else:
            sink = self._sink
            opened = RecordedSink(lambda _: sink, self._address, context)
        self._open.append(opened)
        self._failures_before += opened.failures
        return opened

    @property
    def outputs(self) -> int:
        """Number of outputs in the directory, or of this run's outputs if there is no directory."""
        return sum(consumer.outputs for consumer in self._open)

    @property
    def failures(self) -> int:
        """Number of dead letters that this run delivered."""
        return sum(consumer.failures for consumer in self._open) - self._failures_before

    def _log_failures(self, failures: Sequence[Item]) -> None:
        self.letters.add_failures(monotonic(), failures)
