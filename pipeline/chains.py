"""The operator chains of a flow in Spark tasks, with the same operators as on nodes.

A task reads its rows in the order of their roots, and joins the rows of one root. So elements
arrive in label order, and nothing is ever undone. A task holds the state of its key groups in
memory, like a node, but not its elements.

Timers fire at the roots that move the watermark, also where a partition has no element. So the
tasks that read the inputs send the event times of the records to all partitions of each operator
with timers.
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
    Failures,
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
    by_root_and_partition,
    read_numbers,
    read_rows,
    roots,
    to_payload,
    write_rows,
)

PUSHED_ELEMENTS_MIN = 2000
"""Least number of elements of a batch that is pushed through a chain; roots are not split."""

RECORDS_AT_ONCE = 16
"""Number of input records that are pushed through a chain at once."""

EVENT_TIMES_AT_ONCE = 4096
"""Number of event times in a row."""

NEW_OBJECTS = 20_000
"""Number of new objects that starts Python's garbage collector."""

SLOTS_SHOWN, TEXT_SHOWN = 3, 300
"""Limits of slots and characters of a wrong state in a finding."""

BEGIN = -1
"""The time of the first row of each partition, which restores and saves its state."""


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
    """The directory for the state as of `until`."""
    end: Savepoint | None = None
    """The expected state as of `until`, for an audit; None: the state is not compared."""

    @property
    def keeps_state(self) -> bool:
        """Whether the job needs the state of all partitions, also of those without elements."""
        return any(place is not None for place in (self.start, self.save, self.end))

    def restore(
        self, savepoint: Savepoint, vertex: Vertex, partition: int, table: StateTable
    ) -> None:
        """Fill a table with an operator's state of a partition. Raises SnapshotDamaged."""
        groups = owned_groups(partition, self.partitions, self.flow.groups)
        segments = (savepoint.segment(group, vertex.name) for group in groups)
        restore({vertex.name: table}, segments)


class _TaskChains:
    """The operator chains of a task, and their outputs."""

    def __init__(self, job: TaskSettings) -> None:
        self.job = job
        self.plan: Plan = make_plan(job.flow)
        self.keyed: dict[str, ArrivalOrder | TimedStep] = {}
        self.groups = GroupCache(job.flow.groups)
        self.partitions = Owners(job.partitions, job.flow.groups)
        self._event_times: dict[int, tuple[Clock, Watermark]] = {}
        self.chains = Chains(self.plan, Owners(1, job.flow.groups), self, self._make)
        self._outputs: dict[int, list[tuple[Label, int, object]]] = {}
        """Time -> (label, sink, payload) of its outputs since the last push."""
        gc.set_threshold(NEW_OBJECTS)  # only user functions make reference cycles

    def _make(
        self, vertex: Vertex, after: Step, failures: Failures, encoder: OutputEncoder
    ) -> Step:
        step: ArrivalOrder | TimedStep
        if vertex.on_timer is None:
            step = ArrivalOrder(vertex, after, failures, False, encoder)
        else:
            _, watermark = self._event_time_of(vertex)
            step = TimedStep(vertex, after, failures, watermark, False, encoder)
        self.keyed[vertex.name] = step
        return step

    def clock_of(self, vertex: Vertex) -> Clock:
        """Return the clock of an operator with timers."""
        return self._event_time_of(vertex)[0]

    def _event_time_of(self, vertex: Vertex) -> tuple[Clock, Watermark]:
        """Return the clock and the watermark of an operator with timers.

        Each operator has a clock of its own, as the task goes through the times for each. It has
        the watermarks of all operators, on which the event time of a resumed source depends.
        """
        found = self._event_times.get(vertex.number)
        if found is None:
            flow = self.plan.flow
            sources = [source.event_time for source in flow.sources]
            clock = Clock([None if times is None else times.max_delay for times in sources])
            if self.job.start is not None:
                clock.restore(self.job.start.event_times_of(flow), self.job.since)
            watermarks = {
                port.vertex.number: Watermark(clock, flow.fronts_of(port.vertex))
                for port in self.plan.waiting_ports
            }
            found = self._event_times[vertex.number] = clock, watermarks[vertex.number]
        return found

    def add_outputs(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Collect outputs, in place of a barrier. Raises FunctionFailed without `dead_letters`."""
        if sink == FAILURES and not self.job.dead_letters:
            assert isinstance(values[0], tuple)
            raise FunctionFailed(describe_failure(labels[0], values[0]))
        for output in zip(labels, repeat(sink), values):
            self._outputs.setdefault(output[0][0], []).append(output)

    def push(
        self, port: int, labels: Labels, values: Values, partition: int, until: int = 0
    ) -> Iterator[Row]:
        """Push elements through the chain of a port. Yield rows for later ports, and outputs.

        `until`: all elements and event times for the port below this time are there.
        """
        if labels:
            self.chains.entries[port].push(labels, values, None)
        vertex = self.plan.ports[port].vertex
        step = self.keyed.get(vertex.name)
        if isinstance(step, TimedStep):
            clock = self.clock_of(vertex)
            clock.complete(until)
            step.apply_until(until)
            step.settle(until)
            clock.forget(until)
        for after in self.plan.ports:
            if port in after.feeders:
                for elements, _ in self.chains.outbounds[port, after.number][0].take():
                    yield from self._frames(after.number, elements)
        outputs_by_time, self._outputs = self._outputs, {}
        for time, outputs in outputs_by_time.items():
            outputs.sort(key=itemgetter(0))
            output_labels, sinks, payloads = map(list, zip(*outputs, strict=True))
            yield OUTPUT, partition, time, 0, to_blob(output_labels, sinks, payloads)

    def ends(self, front: int) -> bool:
        """Return whether the last windows come out at the end of a source.

        They do not if the run saves its state for a later run, which may find further records.
        """
        has_event_times = self.job.flow.sources[front].event_time is not None
        return has_event_times and bool(self.plan.waiting_ports) and self.job.save is None

    def take_event_times(self) -> Iterator[Row]:
        """Yield the event times of the records that were pushed, for all partitions."""
        event_times = self.chains.event_times
        if not event_times:
            return
        self.chains.event_times = []
        front, first, _ = event_times[0]
        payload = pack([(time, at) for _, time, at in event_times])
        for port in self.plan.waiting_ports:
            for partition in range(self.job.partitions):
                yield port.number, partition, first, -1 - front, payload

    def _frames(self, port: int, elements: Elements) -> Iterator[Row]:
        vertex = self.plan.ports[port].vertex
        assert vertex.key is not None
        labels, values, _ = elements
        # Copies, since the key function may change its argument. It does not raise, as the chain
        # has already called it for each element.
        keys = list(map(vertex.key, unpack_rows(pack_rows(values))))
        owners = self.partitions.owners_of(keys)
        rows = by_root_and_partition(labels, values, owners)
        for (time, front, partition), labels_of_row, values_of_row in rows:
            yield port, partition, time, front, to_payload(labels_of_row, values_of_row)


class ReadTask(Struct, frozen=True):
    """Task that reads splits of an input, and pushes the records through their source's chain.

    Input: rows (number of a split).
    """

    job: TaskSettings
    front: int
    splits: list[Split]
    firsts: list[tuple[int, int]]
    """Per split: (row, time) of its first record."""

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(batches))

    def _rows(self, batches: Batches) -> Iterator[Row]:
        chains = _TaskChains(self.job)
        for number in read_numbers(batches):
            if number < len(self.firsts) and self._time_after(number) > self.job.since:
                yield from self._read(chains, number)

    def _time_after(self, number: int) -> int:
        """Return the time of the first record after a split."""
        return self.firsts[number + 1][1] if number + 1 < len(self.firsts) else INFINITY

    def _read(self, chains: _TaskChains, number: int) -> Iterator[Row]:
        job = self.job
        port = next(p.number for p in chains.plan.ports if p.front == self.front)
        labels: list[Label] = []
        values: Values = []
        read = last = 0
        end = max(self.firsts[number][1], job.since)
        """The time of the mark that ends the source, if no record follows."""
        for record in self.splits[number].read(*self.firsts[number]):
            time = record.time if isinstance(record, BadRecord) else record[0]
            if time < job.since:
                continue
            if time >= job.until:
                end = INFINITY
                break
            last = time
            if not isinstance(record, BadRecord):
                record = validate_record(*record, job.flow.sources[self.front].name)
            if isinstance(record, BadRecord):
                if record.ends_input or not job.dead_letters:
                    raise record.error()
                yield SET_ASIDE, 0, time, self.front, record.as_line().encode()
                continue
            read += 1
            end = time + 1
            labels.append((time, self.front))
            values.append(record[1])
            if len(labels) >= RECORDS_AT_ONCE:
                yield from chains.push(port, labels, values, 0)
                labels, values = [], []
            if len(chains.chains.event_times) >= EVENT_TIMES_AT_ONCE:
                yield from chains.take_event_times()
        if number == len(self.firsts) - 1 and chains.ends(self.front) and end < job.until:
            labels.append((end, self.front))
            values.append(END)
            last = end
        yield from chains.push(port, labels, values, 0)
        yield from chains.take_event_times()
        yield READ, 0, read, self.front, b""
        yield LAST, 0, last, self.front, b""


class KeyedTask(Struct, frozen=True):
    """Task that applies the keyed operators of one stage to the key groups of a partition.

    Input: rows in the order of (to, time, front). Output: the rows of its chains, and unchanged the
    rows for later stages.
    """

    job: TaskSettings
    stage: int

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        chains = _TaskChains(self.job)
        ports = {port.number for port in chains.plan.ports_of_stage(self.stage)}
        for to, rows_of_port in groupby(rows, key=itemgetter(0)):
            if to in ports:
                yield from self._port(chains, to, rows_of_port)
            else:
                yield from rows_of_port

    def _elements(self, chains: _TaskChains, vertex: Vertex, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows with elements, and record the event times of the others."""
        for row in rows:
            if row[3] >= 0:
                yield row
                continue
            clock, front = chains.clock_of(vertex), -1 - row[3]
            times = unpack(row[4])
            assert isinstance(times, tuple)
            for time, event_time in times:
                clock.record(front, time, event_time)

    def _port(self, chains: _TaskChains, port: int, rows: Iterator[Row]) -> Iterator[Row]:
        first = next(rows)
        partition = first[1]
        vertex = chains.plan.ports[port].vertex
        begins = first[2] == BEGIN
        table = chains.keyed[vertex.name].table
        if begins and self.job.start is not None:
            self.job.restore(self.job.start, vertex, partition, table)
        labels: list[Label] = []
        values: Values = []
        rows = self._elements(chains, vertex, rows if begins else chain([first], rows))
        for labels_of_root, values_of_root in roots(rows):
            time = labels_of_root[0][0]
            if len(labels) >= PUSHED_ELEMENTS_MIN and labels[-1][0] < time:
                yield from chains.push(port, labels, values, partition, time)
                labels, values = [], []
            labels += labels_of_root
            values += values_of_root
        yield from chains.push(port, labels, values, partition, self.job.until)
        if self.job.save is not None and vertex.on_timer is not None and partition == 0:
            event_times = chains.clock_of(vertex).as_of(self.job.until)
            for front, (largest, status) in enumerate(event_times):
                yield EVENT_TIME, 0, largest, len(Status) * front + status, b""
        if begins and self.job.save is not None:
            write_table(self.job.save, vertex, table, chains.groups)
        if begins and self.job.end is not None:
            saved = StateTable(vertex.states, [])
            self.job.restore(self.job.end, vertex, partition, saved)
            yield from _differences(vertex, table, saved, chains.groups)


def _differences(
    vertex: Vertex, computed: StateTable, saved: StateTable, groups: GroupCache
) -> Iterator[Row]:
    """Yield a STATE row for each key whose saved state differs from the computed one."""
    for key in {**computed, **saved}:
        expected, found = _slots(computed, key), _slots(saved, key)
        if expected.keys() != found.keys():
            missing = [expected[slot] for slot in expected.keys() - found.keys()]
            extra = [found[slot] for slot in found.keys() - expected.keys()]
            details = pack(((), _format_rows(missing), _format_rows(extra), f"key {key!r}"))
            yield STATE, 0, groups[key], vertex.number, details


def _slots(table: StateTable, key: object) -> dict[bytes, tuple[object, ...]]:
    """Return the slots of a key: encoding -> (state, slot, value)."""
    rows = [(state.name, *slot) for state in table.states(key) for slot in state.slots()]
    return {pack_row(row): row for row in rows}


def _format_rows(rows: list[tuple[object, ...]]) -> str:
    return ", ".join(repr(tuple(map(thaw, row))) for row in rows[:SLOTS_SHOWN])[:TEXT_SHOWN]
