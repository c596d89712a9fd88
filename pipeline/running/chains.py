"""The segments of a flow inside Spark's tasks: the same operators as on the nodes.

A task is given its rows in the order of their roots and joins those of one root, so elements come
in label order and are applied as they come: nothing is ever undone. The state of a task's
key groups is in memory, as it is on a node; elements are not.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from operator import itemgetter
from pathlib import Path

from driftline.engine.errors import FunctionFailed, InputError
from driftline.engine.flow.context import describe
from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.flow.plan import Plan, plan
from driftline.engine.keygroups import GroupCache, Owners, owned_by
from driftline.engine.labels import INFINITY, Label
from driftline.engine.order.chains import Chains
from driftline.engine.order.ends import Maker
from driftline.engine.order.keyed import Arrival
from driftline.engine.order.steps import (
    FAILURES,
    Elements,
    Failures,
    Signs,
    Step,
    Values,
)
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.savepoint import Savepoint, write_table
from driftline.engine.sources.files.splits import Split
from driftline.engine.sources.source import BadRecord
from driftline.engine.state.table import StateTable
from driftline.engine.state.values import thawed
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.codec import exact, pack, pack_rows, travelled, unpack_rows
from driftline.engine.wire.label_columns import Labels
from driftline.pipeline import PARTITIONS
from driftline.pipeline.running.rows import (
    LAST,
    OUTPUT,
    READ,
    SET_ASIDE,
    STATE,
    Row,
    by_root_and_part,
    read_rows,
    roots,
    to_payload,
    write_rows,
)
from driftline.pipeline.spark.arrow import Batches, read_numbers

AT_ONCE = 2000
"""Elements that are pushed through a segment together, at least; roots are not parted."""

RECORDS_AT_ONCE = 16

SLOTS_SHOWN, TEXT_SHOWN = 3, 300
"""Slots and characters of a state that is not what it has to be."""

BEGIN = -1
"""The time of the row that every key group's partition is sent before all others."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of a run know."""

    flow: Flow
    partitions: int = PARTITIONS
    dead_letters: bool = False
    since: int = 0
    """Records with times in [since, until) are read."""
    until: int = INFINITY
    start: Savepoint | None = None
    """The state to begin with: as of `since`."""
    save: Path | None = None
    """Where to write the state as of `until`."""
    end: Savepoint | None = None
    """What to compare the state as of `until` with."""

    @property
    def keeps_state(self) -> bool:
        """Whether partitions without elements matter, too."""
        return any(found is not None for found in (self.start, self.save, self.end))

    def restore(self, savepoint: Savepoint, vertex: Vertex, part: int, table: StateTable) -> None:
        """Fill a table with what a savepoint holds for a partition. Raises SnapshotDamaged."""
        groups = owned_by(part, self.partitions, self.flow.groups)
        found = (savepoint.segment(group, vertex.number) for group in groups)
        restore({vertex.name: table}, found)


class _Working:
    """The operators of a task, and what they make."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.plan: Plan = plan(job.flow)
        self.keyed: dict[str, Arrival] = {}
        self.groups = GroupCache(job.flow.groups)
        self.parts = Owners(job.partitions, job.flow.groups)
        self.segments = Chains(self.plan, Owners(1, job.flow.groups), self, self._make)
        self._held: dict[int, list[tuple[Label, int, object]]] = {}
        """Per time, (label, sink, payload)."""
        gc.disable()  # as in the nodes: nothing here makes cycles

    def _make(self, vertex: Vertex, after: Step, failures: Failures, maker: Maker) -> Step:
        step = self.keyed[vertex.name] = Arrival(vertex, after, failures, False, maker)
        return step

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs: the tasks' barrier. Raises FunctionFailed unless failures are wanted."""
        if sink == FAILURES and not self.job.dead_letters:
            assert isinstance(values[0], tuple)
            raise FunctionFailed(describe(labels[0], values[0]))
        for output in zip(labels, repeat(sink), values):
            self._held.setdefault(output[0][0], []).append(output)

    def push(self, port: int, labels: Labels, values: Values, part: int) -> Iterator[Row]:
        """Let elements through a port's segment, and give the rows that that makes."""
        self.segments.entries[port].push(labels, values, None)
        for after in self.plan.ports:
            if port in after.feeders:
                for block, _ in self.segments.outbounds[port, after.number][0].take():
                    yield from self._frames(after.number, block)
        held, self._held = self._held, {}
        for time, outputs in held.items():
            outputs.sort(key=itemgetter(0))
            some, sinks, chosen = map(list, zip(*outputs, strict=True))
            yield OUTPUT, part, time, 0, to_blob(some, sinks, chosen)

    def _frames(self, port: int, block: Elements) -> Iterator[Row]:
        vertex = self.plan.ports[port].vertex
        assert vertex.key is not None
        labels, values, _ = block
        # The function of the key may change its argument; what it raises, it has raised before.
        parts = self.parts.of(list(map(vertex.key, unpack_rows(pack_rows(values)))))
        for (time, front, part), some, chosen in by_root_and_part(labels, values, parts):
            yield port, part, time, front, to_payload(some, chosen)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads parts of an input and lets the records through the segment of their source.

    Takes rows whose first column is the number of a part.
    """

    job: Job
    front: int
    parts: list[Split]
    firsts: list[tuple[int, int]]
    """(row, time) of the first of each part"""

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(batches))

    def _rows(self, batches: Batches) -> Iterator[Row]:
        working = _Working(self.job)
        for number in read_numbers(batches):
            if number < len(self.firsts) and self._time_after(number) > self.job.since:
                yield from self._read(working, number)

    def _time_after(self, number: int) -> int:
        """The first time behind a part."""
        return self.firsts[number + 1][1] if number + 1 < len(self.firsts) else INFINITY

    def _read(self, working: _Working, number: int) -> Iterator[Row]:
        job = self.job
        port = next(p.number for p in working.plan.ports if p.front == self.front)
        labels: list[Label] = []
        values: Values = []
        read = last = 0
        for record in self.parts[number].read(*self.firsts[number]):
            time = record.time if isinstance(record, BadRecord) else record[0]
            if time < job.since:
                continue
            if time >= job.until:
                break
            last = time
            if isinstance(record, BadRecord):
                if not job.dead_letters:
                    raise InputError(record.file, record.time, record.reason)
                yield SET_ASIDE, 0, time, self.front, record.as_line().encode()
                continue
            read += 1
            labels.append((time, self.front))
            values.append(travelled(record[1]))
            if len(labels) >= RECORDS_AT_ONCE:
                yield from working.push(port, labels, values, 0)
                labels, values = [], []
        if labels:
            yield from working.push(port, labels, values, 0)
        yield READ, 0, read, self.front, b""
        yield LAST, 0, last, self.front, b""


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """Applies the keyed operators of one stage of the flow to a partition's key groups.

    Takes rows in the order of (to, time, front). Rows for later stages pass through.
    """

    job: Job
    stage: int

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        working = _Working(self.job)
        ports = {port.number for port in working.plan.of_stage(self.stage)}
        for to, found in groupby(rows, key=itemgetter(0)):
            if to in ports:
                yield from self._port(working, to, found)
            else:
                yield from found

    def _port(self, working: _Working, port: int, rows: Iterator[Row]) -> Iterator[Row]:
        first = next(rows)
        part = first[1]
        vertex = working.plan.ports[port].vertex
        begins = first[2] == BEGIN
        table = working.keyed[vertex.name].table
        if begins and self.job.start is not None:
            self.job.restore(self.job.start, vertex, part, table)
        labels: list[Label] = []
        values: Values = []
        for some, chosen in roots(rows if begins else chain([first], rows)):
            labels += some
            values += chosen
            if len(labels) >= AT_ONCE:
                yield from working.push(port, labels, values, part)
                labels, values = [], []
        if labels:
            yield from working.push(port, labels, values, part)
        if begins and self.job.save is not None:
            write_table(self.job.save, vertex, table, working.groups)
        if begins and self.job.end is not None:
            there = StateTable(vertex.states, [])
            self.job.restore(self.job.end, vertex, part, there)
            yield from _differences(vertex, table, there, working.groups)


def _differences(
    vertex: Vertex, table: StateTable, there: StateTable, groups: GroupCache
) -> Iterator[Row]:
    """A row for each key whose state in `there` is not that of the table."""
    for key in {**table, **there}:
        expected, found = _slots(table, key), _slots(there, key)
        if expected.keys() != found.keys():
            lacks = [expected[slot] for slot in expected.keys() - found.keys()]
            has = [found[slot] for slot in found.keys() - expected.keys()]
            about = pack(((), _shown(lacks), _shown(has), f"key {key!r}"))
            yield STATE, 0, groups[key], vertex.number, about


def _slots(table: StateTable, key: object) -> dict[bytes, tuple[object, ...]]:
    """(state, slot, value) of all that a key has, by what to compare them by."""
    rows = [(state.name, *slot) for state in table.states(key) for slot in state.slots()]
    return {exact(row): row for row in rows}


def _shown(rows: list[tuple[object, ...]]) -> str:
    return ", ".join(repr(tuple(map(thawed, row))) for row in rows[:SLOTS_SHOWN])[:TEXT_SHOWN]
