"""Wrapper of a connector's sink: checks the run's identity, counts outputs, detects lost outputs.

A connector only has to store items and t_last in one step. `RecordedSink` does the rest in the same
way for all connectors. In a directory of the run it stores the identity of the outputs, the lock of
the process that writes them, and the sink's t_last in a commit record. If the sink's t_last is
smaller than the recorded one, the sink has lost outputs. This is an error, because a replay would
not produce them again.

Before a delivery, `RecordedSink` writes the record of the bundle to a second file,
``barrier-<n>.next``. After the delivery this file replaces the previous record,
``barrier-<n>.progress``. So the counts are right after a crash at any moment: the sink's `last`
shows which of the two records is valid.

Runs may share a target: each run has its own name for a barrier in the target,
`LINEAGE/barrier-0`. A run without a lineage uses a digest of its identity instead.

Cost: decoding the bundle once more, and one small durable file per bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from msgspec import structs
from msgspec.structs import replace

from driftline.connectors.guarded import call_guarded
from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.consumer import Consumer, LastStored, SinkContext, items_of
from driftline.connectors.sinks.directory import OutputDirectory
from driftline.engine.durable import replace_file, translate_os_errors
from driftline.engine.errors import PayloadError, StateMismatch
from driftline.engine.operators.steps import FAILURES
from driftline.engine.texts import format_time
from driftline.engine.wire.messages import Bundle

T = TypeVar("T")


class RecordedSink:
    """Consumer that wraps the sink at an address.

    Args:
        open_sink: Opens the sink of a connector; its argument contains the barrier's name in the
            target. The first call of `last` or `deliver` opens the sink, in the thread of this
            call, because many clients may be used only by the thread that created them.
        address: The address, for errors and for the identity of the outputs.
        context: The run and its barrier. Without `directory` this object stores no record, and
            `outputs` and `failures` count only its own deliveries.

    Raises:
        StateMismatch: If the directory belongs to another run or another address, or if the commit
            record is damaged.
        Unavailable: If the directory cannot be written, or if another process writes the outputs
            of this barrier.
    """

    def __init__(
        self, open_sink: Callable[[SinkContext], Consumer], address: str, context: SinkContext
    ) -> None:
        self._open_sink = open_sink
        self._sink: Consumer | None = None
        self._address = address
        self._sink_count = len(context.flow.sinks)
        self._on_failures = context.on_failures
        run = context.owner.lineage or sha256(context.identity.encode()).hexdigest()[:16]
        self._name = f"{run}/{context.barrier}"
        self._context = replace(context, barrier=self._name)
        self._claim: OutputDirectory | None = None
        self._record_path: Path | None = None
        self._record = self._next = CommitRecord()
        """`_record`: the record as of the last bundle that the sink confirmed. `_next`: the record
        as of the last bundle whose delivery began."""
        self._last: LastStored | None = None
        """The last bundle in the sink; None if `last` has to ask the sink."""
        if context.directory is not None:
            identity = f"{address}\n{context.identity}"
            self._claim = OutputDirectory(
                context.directory, context.barrier, identity, "*.jsonl", context.owner
            )
            self._record_path = self._claim.metadata / f"barrier-{self._claim.number}.progress"
            self._next_path = self._record_path.with_suffix(".next")
            with translate_os_errors("output", self._record_path):
                if self._record_path.exists():
                    self._record = CommitRecord.decode(
                        self._record_path.read_bytes(), str(self._record_path)
                    )

    @property
    def outputs(self) -> int:
        """Outputs of this barrier delivered so far, without dead letters, in all runs with this
        directory."""
        return self._record.outputs

    @property
    def failures(self) -> int:
        """Dead letters of this barrier delivered so far, in the same runs."""
        return self._record.failures

    def deliver(self, bundle: Bundle) -> None:
        """Write the bundle's record, deliver the bundle to the sink, then confirm the record."""
        if bundle.t_last <= self.last(bundle.barrier, bundle.groups).t_last:
            return
        items = items_of(bundle, self._sink_count)
        updated = self._record.with_bundle(bundle, items)
        self._write_next_record(updated)
        self._last = None  # if one of the next steps fails, `last` has to ask the sink
        try:
            self._call_sink(lambda sink: sink.deliver(structs.replace(bundle, barrier=self._name)))
        except PayloadError as error:
            raise PayloadError(f"the sink {self._address}: {error}") from None
        self._confirm(updated)
        self._last = updated.last
        if self._on_failures is not None:
            self._on_failures([item for item in items if item.sink == FAILURES])

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last bundle that the sink has."""
        previous = self._record.last_for_groups(groups, self._address)
        if self._last is None:
            sink_last = self._call_sink(lambda sink: _check_last(sink.last(self._name, groups)))
            if sink_last.t_last < previous.t_last:
                raise StateMismatch(
                    f"{self._address} has lost outputs of {barrier}: it had all outputs up to "
                    f"{format_time(previous.t_last)}, and now has only those up to "
                    f"{format_time(sink_last.t_last)}. Restore them; or remove all outputs of the "
                    "run from the target and start over with --fresh"
                )
            next_record = self._read_next_record()
            if sink_last.t_last > previous.t_last and next_record.last.t_last == sink_last.t_last:
                self._confirm(next_record)
            self._last = sink_last
        return self._last

    def close(self) -> None:
        """Close the sink and release the claim on the directory."""
        try:
            if self._sink is not None:
                self._call_sink(lambda sink: sink.close())
        finally:
            if self._claim is not None:
                self._claim.close()

    def _write_next_record(self, record: CommitRecord) -> None:
        """Write the record of the bundle to be delivered next, without the bundle's blobs."""
        self._next = replace(record, last=replace(record.last, blobs=()))
        if self._record_path is not None:
            with translate_os_errors("output", self._next_path):
                replace_file(self._next_path, self._next.encode())

    def _read_next_record(self) -> CommitRecord:
        """Return the record as of the last bundle whose delivery began."""
        if self._record_path is None or not self._next_path.exists():
            return self._next
        with translate_os_errors("output", self._next_path):
            return CommitRecord.decode(self._next_path.read_bytes(), str(self._next_path))

    def _confirm(self, record: CommitRecord) -> None:
        """Confirm the record of a bundle that the sink has stored.

        The rename is not durable: if a crash undoes it, `last` repeats it.
        """
        if self._record_path is not None:
            with translate_os_errors("output", self._record_path):
                self._next_path.replace(self._record_path)
        self._record = record

    def _call_sink(self, call: Callable[[Consumer], T]) -> T:
        return call_guarded(f"the sink {self._address}", lambda: call(self._open_once()))

    def _open_once(self) -> Consumer:
        if self._sink is None:
            self._sink = self._open_sink(self._context)
        return self._sink


def _check_last(last: object) -> LastStored:
    """Return the result of a sink's `last`, with its blobs as a tuple.

    Raises TypeError if it is not a `LastStored`, or if a field has a wrong type.
    """
    if not isinstance(last, LastStored):
        raise TypeError(f"last() returned {last!r:.200}, which is not a LastStored")
    has_integers = type(last.t_last) is int and type(last.checksum) is int
    if not has_integers or not all(isinstance(blob, bytes) for blob in last.blobs):
        raise TypeError(
            f"last() returned {last!r:.200}: t_last and checksum have to be integers, and blobs a "
            "tuple of bytes"
        )
    return LastStored(last.t_last, last.checksum, tuple(last.blobs))
