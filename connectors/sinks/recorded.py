"""Wraps the sink of a connector: recognises its run, counts its outputs, notices lost ones.

A connector only has to store items and t_last in one step. What a run needs beyond that is the same
for all of them, and is kept in the directory of the run: whose outputs they are, which process
writes them, and how far the sink had come. That record is written after each bundle:

- A sink that is behind the record has lost outputs. The run is refused: a replay would not make
  them again.
- A sink that is ahead of the record has stored a bundle whose process was killed before it could
  write the record. If the sink gives the blobs of that bundle, its outputs are counted.

Runs may share a target: each run has its own name for a barrier there, `LINEAGE/barrier-0`.

Cost: decoding the bundle once more, and one small durable file per bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.consumer import Consumer, Last, SinkContext, items_of
from driftline.connectors.sinks.directory import OutputDirectory
from driftline.engine.durable import replace_file, reported
from driftline.engine.errors import DriftlineError, FlowError, StateMismatch
from driftline.engine.operators.steps import FAILURES
from driftline.engine.texts import text_of, time_in_words
from driftline.engine.wire.messages import Bundle

T = TypeVar("T")


class RecordedSink:
    """A consumer around the sink at an address.

    Args:
        open_sink: Opens the sink of a connector. It is called at the first call of `last` or
            `deliver`, by the thread that makes it: many clients belong to the thread that made
            them.
        address: The address, for errors.
        context: The run. Without a directory nothing is recorded, and `outputs` counts those of
            this object.

    Raises:
        StateMismatch: If the directory belongs to another run, or to another address.
        Unavailable: If the directory cannot be written, or another process writes there.
    """

    def __init__(
        self, open_sink: Callable[[], Consumer], address: str, context: SinkContext
    ) -> None:
        self._open_sink = open_sink
        self._sink: Consumer | None = None
        self._address = address
        self._sinks = len(context.flow.sinks)
        self._on_failures = context.on_failures
        lineage = context.mark.lineage
        self._name = f"{lineage}/{context.barrier}" if lineage else context.barrier
        self._claim: OutputDirectory | None = None
        self._path: Path | None = None
        self._record = CommitRecord()
        self._last: Last | None = None
        """The last bundle in the sink; None: the sink has to be asked."""
        if context.directory is not None:
            identity = f"{address}\n{context.identity}"
            self._claim = OutputDirectory(
                context.directory, context.barrier, identity, "*.jsonl", context.mark
            )
            self._path = self._claim.hidden / f"barrier-{self._claim.number}.progress"
            with reported("output", self._path):
                if self._path.exists():
                    self._record = CommitRecord.decode(self._path.read_bytes(), str(self._path))

    @property
    def outputs(self) -> int:
        """Outputs delivered so far, without dead letters, in all runs with this directory."""
        return self._record.outputs

    @property
    def failures(self) -> int:
        """Dead letters delivered so far, in the same runs."""
        return self._record.failures

    def deliver(self, bundle: Bundle) -> None:
        """Give the bundle to the sink, then record it."""
        if bundle.t_last <= self.last(bundle.barrier, bundle.groups).t_last:
            return
        items = items_of(bundle, self._sinks)
        self._last = None  # if a step fails from here on, the sink has to be asked
        self._called(lambda sink: sink.deliver(replace(bundle, barrier=self._name)))
        after = self._record.after(bundle, items)
        self._note(after)
        self._last = after.last
        if self._on_failures is not None:
            self._on_failures([item for item in items if item.sink == FAILURES])

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle that the sink has."""
        before = self._record.of_groups(groups, self._address)
        if self._last is None:
            found = self._called(lambda sink: sink.last(self._name, groups))
            if found.t_last < before.t_last:
                raise StateMismatch(
                    f"{self._address} has lost outputs of {barrier}: it had all up to "
                    f"{time_in_words(before.t_last)}, and has them up to "
                    f"{time_in_words(found.t_last)} now. Restore them, or begin anew with --fresh"
                )
            if found.t_last > before.t_last:
                bundle = Bundle(barrier, 0, groups, found.blobs, found.t_last, found.checksum)
                self._note(self._record.after(bundle, items_of(bundle, self._sinks)))
            self._last = found
        return self._last

    def close(self) -> None:
        """Close the sink, and release the claim on the directory."""
        try:
            if self._sink is not None:
                self._called(lambda sink: sink.close())
        finally:
            if self._claim is not None:
                self._claim.close()

    def _note(self, record: CommitRecord) -> None:
        """Record how far the sink has come."""
        record = replace(record, last=replace(record.last, blobs=()))
        if self._path is not None:
            with reported("output", self._path):
                replace_file(self._path, record.encode())
        self._record = record

    def _called(self, call: Callable[[Consumer], T]) -> T:
        """Call the sink. An error that is not Driftline's is a fault of the sink: FlowError."""
        try:
            if self._sink is None:
                self._sink = self._open_sink()
            return call(self._sink)
        except DriftlineError:
            raise
        except Exception as error:
            raise FlowError(
                f"the sink {self._address} raised {type(error).__name__}: {text_of(error)}. Mend "
                "it and give the same command again; for errors that pass, raise Unavailable"
            ) from error
