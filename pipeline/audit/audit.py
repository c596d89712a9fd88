"""The audit: recompute what a flow's outputs must be, and compare with what a consumer has.

A flow is deterministic, so what a consumer must have follows from the input alone: the audit proves
exactly-once, or names what is wrong, at any scale. Both sides come together by time, partition
by partition; the driver sees counts and the first examples.

missing        the consumer lacks an output
extra          the consumer has what the flow does not give, or has it once more
different      an output with the label of another value
out_of_order   an output behind one with a larger label in the same file
state          a key whose state in the savepoint at the end is not what it must be

A long stream is audited in pieces, from savepoint to savepoint: as the state at the end of each is
compared, too, all of them together prove what one audit of the whole would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY, Label
from driftline.engine.sinks.lines import Lines
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.sources import Source
from driftline.engine.wire.bundles import from_blob
from driftline.engine.wire.codec import pack, unpack
from driftline.pipeline import PARTITIONS
from driftline.pipeline.audit.found import Piece, pieces_of, same_line
from driftline.pipeline.running.chains import TEXT_SHOWN, Job
from driftline.pipeline.running.rows import OUTPUT, SCHEMA, STATE, Row, read_rows, write_rows
from driftline.pipeline.running.runner import outputs_of, prepared
from driftline.pipeline.spark.arrow import Batches, apply, numbers, read_numbers
from driftline.pipeline.spark.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND, EDGES, FINDING, COMPARED = -10, -11, -12, -13
"""More kinds of rows: lines of one time; the ends of a piece; a finding; how many were compared."""

KINDS = ("missing", "extra", "out_of_order", "different", "state")

EXAMPLES = 10
"""Of each kind, that are shown; and that each task tells of."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one output."""

    kind: str
    sink: str
    label: Label
    expected: str
    found: str
    where: str

    def as_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "kind": self.kind,
            "sink": self.sink,
            "t": list(self.label),
            "expected": self.expected,
            "found": self.found,
            "file": self.where,
        }


@dataclass(slots=True)
class Report:
    """What an audit has found."""

    items: int = 0
    """Outputs that the flow gives."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether the consumer has exactly what it must have."""
        return not any(self.counts.values())

    def text(self) -> str:
        """For people."""
        told = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in self.counts.items()]
        verdict = "clean" if self.clean else ", ".join(told)
        lines = [f"{self.items:,} outputs compared: {verdict}"]
        for finding in self.examples:
            where = f", {finding.where}" if finding.where else ""
            label = f" {list(finding.label)}" if finding.label else ""
            lines.append(f"{finding.kind}: {finding.sink}{label}{where}")
            if finding.expected:
                lines.append(f"  expected: {finding.expected}")
            if finding.found:
                lines.append(f"  found:    {finding.found}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """For machines."""
        shown = [finding.as_json() for finding in self.examples]
        return {"items": self.items, **self.counts, "examples": shown}


def audit(
    flow: Flow,
    spark: SparkSession,
    inputs: Sequence[Source],
    outputs: Sequence[Path],
    *,
    partitions: int = PARTITIONS,
    dead_letters: bool = False,
    since: int = 0,
    until: int = INFINITY,
    start: Savepoint | None = None,
    end: Savepoint | None = None,
) -> Report:
    """Compare what is in some output directories with what must be, for times in [since, until).

    `start`: the state before `since`; `end`: the state before `until`, to be compared. Raises what
    `run` and `pieces_of` raise.
    """
    from pyspark.sql import functions as f

    job = prepared(Job(flow, partitions, dead_letters, since, until, start, end=end))
    pieces = pieces_of(outputs, flow, 2 * spark.sparkContext.defaultParallelism)
    with explained():
        expected = outputs_of(job, spark, inputs).where(f.col("to").isin(OUTPUT, STATE))
        read = apply(numbers(spark, len(pieces)), FindTask(flow, pieces, since, until), SCHEMA)
        part = f.expr(f"cast(pmod(time, {job.partitions}) as int)")
        rows = expected.union(read).repartitionById(job.partitions, part)
        rows = rows.sortWithinPartitions("time", "to")
        told = apply(rows, CompareTask(flow), SCHEMA).collect()
    return _report(flow, pieces, [(r.to, r.part, r.time, r.front, bytes(r.payload)) for r in told])


@dataclass(frozen=True, slots=True)
class FindTask:
    """Reads pieces of what a consumer has. Takes rows whose first column is a piece's number."""

    flow: Flow
    pieces: Sequence[Piece]
    since: int
    until: int

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(batches))

    def _rows(self, batches: Batches) -> Iterator[Row]:
        for number in read_numbers(batches):
            yield from self._piece(number)

    def _piece(self, number: int) -> Iterator[Row]:
        piece = self.pieces[number]
        last: dict[int, Label] = {}
        first: dict[int, Label] = {}
        for (sink, time), run in groupby(
            piece.lines(self.flow), key=lambda line: (line[0], line[1][0] if line[1] else -1)
        ):
            texts = []
            for _, label, text in run:
                if label is None:
                    yield _finding("extra", sink, (), "", text, piece.file)
                    continue
                first.setdefault(sink, label)
                before = last.get(sink, label)
                if label < before and self.since <= time < self.until:
                    shown = f"behind {list(before)}"
                    yield _finding("out_of_order", sink, label, "", shown, piece.file)
                last[sink] = label
                texts.append((label, text))
            if texts and self.since <= time < self.until:
                yield FOUND, 0, time, sink, pack((number, tuple(texts)))
        for sink, label in first.items():
            yield EDGES, 0, number, sink, pack((label, last[sink]))


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Compares outputs and lines of the same times. Takes rows in the order of (time, to).

    Gives FINDING rows, the first of each kind, with their number as `time`; COMPARED; EDGES.
    """

    flow: Flow

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        lines = Lines(self.flow)
        compared = 0
        told = [0] * len(KINDS)
        for _, run in groupby(rows, key=itemgetter(2)):
            expected: dict[tuple[int, Label], str] = {}
            found: dict[tuple[int, Label], list[tuple[int, str]]] = {}
            findings: list[Row] = []
            for row in run:
                if row[0] == OUTPUT:
                    for item in from_blob(row[4]):
                        expected[item.sink, item.label] = lines.format(item)
                elif row[0] == FOUND:
                    for number, label, text in _lines(row[4]):
                        found.setdefault((row[3], label), []).append((number, text))
                elif row[0] == FINDING:
                    findings.append(row)
                elif row[0] == STATE:
                    findings.append((FINDING, KINDS.index("state"), *row[2:]))
                else:
                    yield row
            compared += len(expected)
            findings += _compare(expected, found)
            for finding in findings:
                kind = finding[1]
                told[kind] += 1
                if told[kind] <= EXAMPLES:
                    yield finding
        for kind, count in enumerate(told):
            yield COMPARED, kind, count, compared, b""


def _compare(
    expected: dict[tuple[int, Label], str], found: dict[tuple[int, Label], list[tuple[int, str]]]
) -> Iterator[Row]:
    """What is wrong with the lines of one time."""
    for (sink, label), text in expected.items():
        there = found.pop((sink, label), [])
        if not there:
            yield _finding("missing", sink, label, text, "", "")
            continue
        if not any(same_line(text, one) for _, one in there):
            yield _finding("different", sink, label, text, there[0][1], there[0][0])
        for number, again in there[1:]:
            yield _finding("extra", sink, label, text, again, number)
    for (sink, label), there in found.items():
        for number, text in there:
            yield _finding("extra", sink, label, "", text, number)


def _finding(
    kind: str, sink: int, label: Label, expected: str, found: str, where: str | int
) -> Row:
    about = pack((label, expected[:TEXT_SHOWN], found[:TEXT_SHOWN], where))
    return FINDING, KINDS.index(kind), label[0] if label else 0, sink, about


def _lines(payload: bytes) -> Iterator[tuple[int, Label, str]]:
    """(number of the piece, label, line) of a FOUND row."""
    match unpack(payload):
        case (int(number), tuple(texts)):
            for label, text in texts:
                yield number, label, text


def _report(flow: Flow, pieces: Sequence[Piece], rows: Iterable[Row]) -> Report:
    report = Report()
    names = Lines(flow).names
    edges: dict[tuple[int, int], tuple[Label, Label]] = {}
    found: list[Finding] = []
    for _, part, time, front, payload in rows:
        match unpack(payload) if payload else None:
            case None:
                report.counts[KINDS[part]] += time
                report.items += front if part == 0 else 0
            case (tuple(first), tuple(last)):
                edges[time, front] = first, last
            case (tuple(label), str(expected), str(text), where):
                file = pieces[where].file if isinstance(where, int) else str(where)
                name = flow.vertices[front].name if KINDS[part] == "state" else names[front]
                found.append(Finding(KINDS[part], name, label, expected, text, file))
    for (number, sink), (first, _) in sorted(edges.items()):
        file = pieces[number].file
        before = edges.get((number - 1, sink))
        if before is not None and file == pieces[number - 1].file and first < before[1]:
            report.counts["out_of_order"] += 1
            shown = f"behind {list(before[1])}"
            found.append(Finding("out_of_order", names[sink], first, "", shown, file))
    found.sort(key=lambda finding: (finding.kind, finding.label))
    for _, some in groupby(found, key=lambda finding: finding.kind):
        report.examples += list(some)[:EXAMPLES]
    return report
