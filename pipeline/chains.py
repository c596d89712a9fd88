"""The operator chains of a flow in Spark tasks, with the same operators as on nodes.

A keyed task reads the rows of a port in the order of their roots, and combines the rows of one
root. So elements arrive in label order, and nothing is ever undone. Like a node, a task holds the
state of its key groups in memory, but not all of its elements.

Timers fire at the roots that move the watermark, even in a partition without elements of the root.
So the tasks that read the inputs send event times to all partitions of each operator with timers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, groupby, repeat
from operator import itemgetter
from pathlib import Path

from msgspec import Struct

from driftline.connectors.files.splits import Split
from driftline.engine.errors import FunctionFailed
from driftline.engine.event_time import END, Clock, Status, Watermark
from driftline.engine.flow.chains import Chains
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import Plan, make_plan
from driftline.engine.keygroups import GroupCache, Owners, owned_groups
from driftline.engine.labels import INFINITY, Label
from driftline.engine.operators.context import describe_failure
from driftline.engine.operators.keyed import ArrivalOrder
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.steps import (
    FAILURES,
    Elements,
    FailureReporter,
    Signs,
    Step,
    Values,
)
from driftline.engine.operators.timed import TimedStep
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.savepoint import Savepoint, write_table
from driftline.engine.sources.record import validate_record
from driftline.engine.sources.source import BadRecord
from driftline.engine.state.table import StateTable
from driftline.engine.state.values import pack_row, thaw
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.codec import pack, pack_rows, unpack, unpack_rows
from driftline.engine.wire.label_columns import Labels
from driftline.pipeline import PARTITIONS
from driftline.pipeline.tasks import (
    EVENT_TIME,
    LAST,
    OUTPUT,
    READ,
    SET_ASIDE,
    STATE,
    Batches,
    Row,
    elements_by_root,
    group_by_root_and_partition,
    read_numbers,
    read_rows,
    to_payload,
    write_rows,
)

PUSHED_ELEMENTS_MIN = 2000
"""Before a push, a keyed task collects this many elements, and all elements of the last time."""

RECORDS_AT_ONCE = 16
"""`ReadTask` pushes this many input records through a chain at once."""

EVENT_TIMES_AT_ONCE = 4096
"""`ReadTask` sends event times in rows of this many, or a few more."""

GC_THRESHOLD = 20_000
"""Number of new objects that starts Python's garbage collector."""

SLOTS_SHOWN, TEXT_SHOWN = 3, 300
"""Limits of a finding of an audit: slots (entries) of a wrong state, and characters of a text."""

BEGIN = -1
"""Time of the first row of a port in each partition, if the run uses savepoints. At this row a task
restores the state. After the last row of the port it saves or compares the state."""


class TaskSettings(Struct, frozen=True):
    """The settings of a run, sent to all its tasks."""

    flow: Flow
    partitions: int = PARTITIONS
    dead_letters: bool = False
    since: int = 0
    """Only records with times in [since, until) are read."""
    until: int = INFINITY
    start: Savepoint | None = None
    """The state as of `since`; None: no state."""
    save: Path | None = None
    """The directory to which the run saves the state as of `until`; None: it saves none."""
    compare_with: Savepoint | None = None
    """The savepoint that an audit compares with the computed state as of `until`; None: it compares
    no state."""

    @property
    def uses_savepoints(self) -> bool:
        """Whether the run reads or writes savepoints.

        If so, each partition of a port has a BEGIN row: it may have state even without elements.
        """
        return any(setting is not None for setting in (self.start, self.save, self.compare_with))

    def restore_table(
        self, savepoint: Savepoint, vertex: Vertex, partition: int, table: StateTable
    ) -> None:
        """Fill an empty table with the state of an operator in a partition.

        Raises SnapshotDamaged.
        """
        groups = owned_groups(partition, self.partitions, self.flow.groups)
        segments = (savepoint.segment(group, vertex.name) for group in groups)
        restore({vertex.name: table}, segments)


class _TaskChains:
    """The operator chains of a task, and their outputs."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings
        self.plan: Plan = make_plan(settings.flow)
        self.keyed_steps: dict[str, ArrivalOrder | TimedStep] = {}
        """Name of an operator -> its step."""
        self.groups = GroupCache(settings.flow.groups)
        self.partitions = Owners(settings.partitions, settings.flow.groups)
        self._clocks: dict[int, tuple[Clock, Watermark]] = {}
        self.chains = Chains(
            self.plan, Owners(1, settings.flow.groups), self, self._make_keyed_step
        )
        self._outputs: dict[int, list[tuple[Label, int, object]]] = {}
        """Time -> (label, sink, payload) of each of its outputs since the last push."""
        gc.set_threshold(GC_THRESHOLD)  # collect rarely: only user functions make reference cycles

    def _make_keyed_step(
        self, vertex: Vertex, next_step: Step, failures: FailureReporter, encoder: OutputEncoder
    ) -> Step:
        step: ArrivalOrder | TimedStep
        if vertex.on_timer is None:
            step = ArrivalOrder(vertex, next_step, failures, False, encoder)
        else:
            _, watermark = self._clock_and_watermark_of(vertex)
            step = TimedStep(vertex, next_step, failures, watermark, False, encoder)
        self.keyed_steps[vertex.name] = step
        return step

    def clock_of(self, vertex: Vertex) -> Clock:
        """Return the clock of an operator with timers."""
        return self._clock_and_watermark_of(vertex)[0]

    def _clock_and_watermark_of(self, vertex: Vertex) -> tuple[Clock, Watermark]:
        """Return the clock and the watermark of an operator with timers.

        Each operator has its own clock, because the task applies all times at one operator before
        the next operator. Each clock has the watermarks of all operators, because they determine
        the event time at which a source resumes after an idle period.
        """
        clock_and_watermark = self._clocks.get(vertex.number)
        if clock_and_watermark is None:
            flow = self.plan.flow
            sources = [source.event_time for source in flow.sources]
            clock = Clock([None if times is None else times.max_delay for times in sources])
            if self.settings.start is not None:
                clock.restore(self.settings.start.event_times_of(flow), self.settings.since)
            watermarks = {
                port.vertex.number: Watermark(clock, flow.fronts_of(port.vertex))
                for port in self.plan.waiting_ports
            }
            clock_and_watermark = clock, watermarks[vertex.number]
            self._clocks[vertex.number] = clock_and_watermark
        return clock_and_watermark

    def add_outputs(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Collect outputs: the chains call this object as their barrier.

        Without `dead_letters`, raises FunctionFailed if the outputs are failures.
        """
        if sink == FAILURES and not self.settings.dead_letters:
            assert isinstance(values[0], tuple)
            raise FunctionFailed(describe_failure(labels[0], values[0]))
        for output in zip(labels, repeat(sink), values):
            self._outputs.setdefault(output[0][0], []).append(output)

    def push(
        self, port: int, labels: Labels, values: Values, partition: int, until: int = 0
    ) -> Iterator[Row]:
        """Push elements through the chain of a port. Yield rows for later ports, and OUTPUT rows.

        `until`: with these elements, the port has received all elements and event times below this
        time. Only operators with timers need it.
        """
        if labels:
            self.chains.entries[port].push(labels, values, None)
        vertex = self.plan.ports[port].vertex
        step = self.keyed_steps.get(vertex.name)
        if isinstance(step, TimedStep):
            clock = self.clock_of(vertex)
            clock.complete(until)
            step.apply_until(until)
            step.settle(until)
            clock.forget(until)
        for receiver in self.plan.ports:
            if port in receiver.upstreams:
                for elements, _ in self.chains.outbounds[port, receiver.number][0].take():
                    yield from self._frames(receiver.number, elements)
        outputs_by_time, self._outputs = self._outputs, {}
        for time, outputs in outputs_by_time.items():
            outputs.sort(key=itemgetter(0))
            output_labels, sinks, payloads = map(list, zip(*outputs, strict=True))
            yield OUTPUT, partition, time, 0, to_blob(output_labels, sinks, payloads)

    def needs_end_mark(self, front: int) -> bool:
        """Return whether the source needs an END mark, which fires the last windows and timers.

        It does not if the run saves its state: a later run may read further records.
        """
        has_event_times = self.settings.flow.sources[front].event_time is not None
        return has_event_times and bool(self.plan.waiting_ports) and self.settings.save is None

    def take_event_times(self) -> Iterator[Row]:
        """Yield rows with the task's new event times, for all partitions of operators with timers.

        Precondition: the task reads one front only.
        """
        event_times = self.chains.event_times
        if not event_times:
            return
        self.chains.event_times = []
        front, first_time, _ = event_times[0]
        payload = pack([(time, event_time) for _, time, event_time in event_times])
        for port in self.plan.waiting_ports:
            for partition in range(self.settings.partitions):
                # A negative front marks a row of event times (`pipeline.tasks`).
                yield port.number, partition, first_time, -1 - front, payload

    def _frames(self, port: int, elements: Elements) -> Iterator[Row]:
        vertex = self.plan.ports[port].vertex
        assert vertex.key is not None
        labels, values, _ = elements
        # Pass copies, since the key function may change its argument. The function does not raise,
        # as the chain has already called it for each element.
        keys = list(map(vertex.key, unpack_rows(pack_rows(values))))
        owners = self.partitions.owners_of(keys)
        rows = group_by_root_and_partition(labels, values, owners)
        for (time, front, partition), labels_of_row, values_of_row in rows:
            yield port, partition, time, front, to_payload(labels_of_row, values_of_row)


class ReadTask(Struct, frozen=True):
    """Task that reads splits of an input, and pushes the records through their source's chain.

    Input: rows with the number of a split. Output: the rows of the chain; a SET_ASIDE row per bad
    record; READ and LAST rows per split. Raises InputError if the input breaks off and, without
    `dead_letters`, for a bad record.
    """

    settings: TaskSettings
    front: int
    splits: list[Split]
    firsts: list[tuple[int, int]]
    """(row, time) of each split's first record, up to and including a split that breaks off."""

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(batches))

    def _rows(self, batches: Batches) -> Iterator[Row]:
        chains = _TaskChains(self.settings)
        for number in read_numbers(batches):
            if number < len(self.firsts) and self._time_after(number) > self.settings.since:
                yield from self._read(chains, number)

    def _time_after(self, number: int) -> int:
        """Return the time of the first record after a split; INFINITY after the last split."""
        return self.firsts[number + 1][1] if number + 1 < len(self.firsts) else INFINITY

    def _read(self, chains: _TaskChains, number: int) -> Iterator[Row]:
        settings = self.settings
        port = next(p.number for p in chains.plan.ports if p.front == self.front)
        labels: list[Label] = []
        values: Values = []
        records_read = last_time = 0
        end_time = max(self.firsts[number][1], settings.since)
        """The time of an END mark after the last record; INFINITY if further records follow."""
        for record in self.splits[number].read(*self.firsts[number]):
            time = record.time if isinstance(record, BadRecord) else record[0]
            if time < settings.since:
                continue
            if time >= settings.until:
                end_time = INFINITY
                break
            last_time = time
            if not isinstance(record, BadRecord):
                record = validate_record(*record, settings.flow.sources[self.front].name)
            if isinstance(record, BadRecord):
                if record.ends_input or not settings.dead_letters:
                    raise record.error()
                yield SET_ASIDE, 0, time, self.front, record.as_line().encode()
                continue
            records_read += 1
            end_time = time + 1
            labels.append((time, self.front))
            values.append(record[1])
            if len(labels) >= RECORDS_AT_ONCE:
                yield from chains.push(port, labels, values, 0)
                labels, values = [], []
            if len(chains.chains.event_times) >= EVENT_TIMES_AT_ONCE:
                yield from chains.take_event_times()
        is_last = number == len(self.firsts) - 1
        if is_last and chains.needs_end_mark(self.front) and end_time < settings.until:
            labels.append((end_time, self.front))
            values.append(END)
            last_time = end_time
        yield from chains.push(port, labels, values, 0)
        yield from chains.take_event_times()
        yield READ, 0, records_read, self.front, b""
        yield LAST, 0, last_time, self.front, b""


class KeyedTask(Struct, frozen=True):
    """Task that applies the keyed operators of one stage to the key groups of a partition.

    Input: rows in the order of (to, time, front). Output: the rows of its chains; EVENT_TIME rows
    if the run saves its state; STATE rows for wrong states. The task forwards results and rows for
    later stages unchanged.
    """

    settings: TaskSettings
    stage: int

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        chains = _TaskChains(self.settings)
        ports = {port.number for port in chains.plan.ports_of_stage(self.stage)}
        for to, rows_of_port in groupby(rows, key=itemgetter(0)):
            if to in ports:
                yield from self._apply_port(chains, to, rows_of_port)
            else:
                yield from rows_of_port

    def _elements(self, chains: _TaskChains, vertex: Vertex, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows with elements; record the event times of the other rows in the clock."""
        for row in rows:
            if row[3] >= 0:  # the front; negative in a row of event times (`pipeline.tasks`)
                yield row
                continue
            clock, front = chains.clock_of(vertex), -1 - row[3]
            times = unpack(row[4])
            assert isinstance(times, tuple)
            for time, event_time in times:
                clock.record(front, time, event_time)

    def _apply_port(self, chains: _TaskChains, port: int, rows: Iterator[Row]) -> Iterator[Row]:
        """Apply the elements of a port; also restore, save or compare its state."""
        first_row = next(rows)
        partition = first_row[1]
        vertex = chains.plan.ports[port].vertex
        is_begin_row = first_row[2] == BEGIN
        table = chains.keyed_steps[vertex.name].table
        if is_begin_row and self.settings.start is not None:
            self.settings.restore_table(self.settings.start, vertex, partition, table)
        labels: list[Label] = []
        values: Values = []
        rows = self._elements(chains, vertex, rows if is_begin_row else chain([first_row], rows))
        for labels_of_root, values_of_root in elements_by_root(rows):
            time = labels_of_root[0][0]
            if len(labels) >= PUSHED_ELEMENTS_MIN and labels[-1][0] < time:
                yield from chains.push(port, labels, values, partition, time)
                labels, values = [], []
            labels += labels_of_root
            values += values_of_root
        yield from chains.push(port, labels, values, partition, self.settings.until)
        if self.settings.save is not None and vertex.on_timer is not None and partition == 0:
            event_times = chains.clock_of(vertex).as_of(self.settings.until)
            for front, (largest, status) in enumerate(event_times):
                yield EVENT_TIME, 0, largest, len(Status) * front + status, b""
        if is_begin_row and self.settings.save is not None:
            write_table(self.settings.save, vertex, table, chains.groups)
        if is_begin_row and self.settings.compare_with is not None:
            saved = StateTable(vertex.states, [])
            self.settings.restore_table(self.settings.compare_with, vertex, partition, saved)
            yield from _differences(vertex, table, saved, chains.groups)


def _differences(
    vertex: Vertex, computed: StateTable, saved: StateTable, groups: GroupCache
) -> Iterator[Row]:
    """Yield a STATE row for each key whose saved state differs from the computed one."""
    for key in {**computed, **saved}:
        expected, found = _rows_by_encoding(computed, key), _rows_by_encoding(saved, key)
        if expected.keys() != found.keys():
            missing = [expected[row] for row in expected.keys() - found.keys()]
            extra = [found[row] for row in found.keys() - expected.keys()]
            details = pack(((), _format_rows(missing), _format_rows(extra), f"key {key!r}"))
            yield STATE, 0, groups[key], vertex.number, details


def _rows_by_encoding(table: StateTable, key: object) -> dict[bytes, tuple[object, ...]]:
    """Return the slots of a key: encoding -> (name of the state, slot, value)."""
    rows = [(state.name, *slot) for state in table.states(key) for slot in state.slots()]
    return {pack_row(row): row for row in rows}


def _format_rows(rows: list[tuple[object, ...]]) -> str:
    return ", ".join(repr(tuple(map(thaw, row))) for row in rows[:SLOTS_SHOWN])[:TEXT_SHOWN]
