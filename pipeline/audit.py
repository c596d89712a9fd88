"""The audit: recompute the outputs of a flow, and compare them with those that a consumer has.

A flow is deterministic, so its input determines its outputs: the audit proves exactly-once, or
names every difference, at any scale. Tasks compare expected and found outputs time by time; the
driver gets only counts and the first examples.

missing        the consumer lacks an output
extra          the consumer has an output that the flow does not produce, or has a duplicate
different      an output with the right label and a wrong value
out_of_order   an output after one with a larger label in the same file
state          a key whose state in the savepoint at the end differs from the recomputed state

A long stream can be audited in intervals, from savepoint to savepoint. Each audit also compares the
state at its end, so together they prove as much as one audit of the whole stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from driftline.connectors.sinks.lines import JsonLines
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY, Label
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.sources import Source
from driftline.engine.wire.bundles import from_blob
from driftline.engine.wire.codec import pack, unpack
from driftline.pipeline import PARTITIONS
from driftline.pipeline.chains import TEXT_SHOWN, TaskSettings
from driftline.pipeline.output_shares import OutputShare, is_same_line, shares_of
from driftline.pipeline.runner import outputs_of, prepare_job
from driftline.pipeline.tasks import (
    OUTPUT,
    SCHEMA,
    STATE,
    Batches,
    Row,
    apply,
    numbers,
    read_numbers,
    read_rows,
    reraise_task_errors,
    write_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND, EDGES, FINDING, COMPARED = -10, -11, -12, -13
"""Kinds of rows: lines of one time; first and last label of a share; a finding; counts."""

KINDS = ("missing", "extra", "out_of_order", "different", "state")

EXAMPLES = 10
"""Limit of findings of each kind in the report, and from each task."""


class Finding(Struct, frozen=True):
    """One wrong output, or one wrong state."""

    kind: str
    """One of KINDS."""
    sink: str
    """The name of the sink, or of the operator whose state is wrong."""
    label: Label
    expected: str
    """The line that the flow produces; "" if none."""
    found: str
    """The line of the consumer, or a description of what is wrong; "" if none."""
    where: str
    """The file, or the key of a wrong state; "" if unknown."""

    def as_json(self) -> dict[str, object]:
        """Return the finding as a JSON object."""
        return {
            "kind": self.kind,
            "sink": self.sink,
            "t": list(self.label),
            "expected": self.expected,
            "found": self.found,
            "file": self.where,
        }


class AuditReport(Struct):
    """The result of an audit."""

    items: int = 0
    """Number of outputs of the flow."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: list[Finding] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether the consumer has exactly the outputs of the flow."""
        return not any(self.counts.values())

    def text(self) -> str:
        """Return the report as lines of text."""
        counts = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in self.counts.items()]
        verdict = "clean" if self.is_clean else ", ".join(counts)
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
        """Return the report as a JSON object."""
        examples = [finding.as_json() for finding in self.examples]
        return {"items": self.items, **self.counts, "examples": examples}


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
) -> AuditReport:
    """Compare the outputs in directories with those of the flow, for times in [since, until).

    `outputs`: the directories. `start`: the state before `since`. `end`: a savepoint, whose state
    before `until` is also compared. Raises the errors of `run` and of `shares_of`.
    """
    from pyspark.sql import functions as f

    job = prepare_job(TaskSettings(flow, partitions, dead_letters, since, until, start, end=end))
    shares = shares_of(outputs, flow, 2 * spark.sparkContext.defaultParallelism)
    with reraise_task_errors():
        expected = outputs_of(job, spark, inputs).where(f.col("to").isin(OUTPUT, STATE))
        found = apply(numbers(spark, len(shares)), ReadFound(flow, shares, since, until), SCHEMA)
        partition = f.expr(f"cast(pmod(time, {job.partitions}) as int)")
        rows = expected.union(found).repartitionById(job.partitions, partition)
        rows = rows.sortWithinPartitions("time", "to")
        results = apply(rows, CompareTask(flow, dead_letters), SCHEMA).collect()
    rows_of_results = [(r.to, r.partition, r.time, r.front, bytes(r.payload)) for r in results]
    return _report(flow, shares, rows_of_results)


class ReadFound(Struct, frozen=True):
    """Task that reads shares of a consumer's outputs. Input: rows (number of a share)."""

    flow: Flow
    shares: Sequence[OutputShare]
    since: int
    until: int

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(batches))

    def _rows(self, batches: Batches) -> Iterator[Row]:
        for number in read_numbers(batches):
            yield from self._share(number)

    def _share(self, number: int) -> Iterator[Row]:
        share = self.shares[number]
        last: dict[int, Label] = {}
        first: dict[int, Label] = {}
        for (sink, time), run in groupby(
            share.lines(self.flow), key=lambda line: (line[0], line[1][0] if line[1] else -1)
        ):
            texts = []
            for _, label, text in run:
                if label is None:
                    yield _finding("extra", sink, (), "", text, share.file)
                    continue
                first.setdefault(sink, label)
                before = last.get(sink, label)
                if label < before and self.since <= time < self.until:
                    shown = f"behind {list(before)}"
                    yield _finding("out_of_order", sink, label, "", shown, share.file)
                last[sink] = label
                texts.append((label, text))
            if texts and self.since <= time < self.until:
                yield FOUND, 0, time, sink, pack((number, tuple(texts)))
        for sink, label in first.items():
            yield EDGES, 0, number, sink, pack((label, last[sink]))


class CompareTask(Struct, frozen=True):
    """Task that compares expected and found outputs of each time.

    Input: rows ordered by (time, to). Output: FINDING rows, at most EXAMPLES of each kind; COMPARED
    rows (kind, number of findings as `time`, number of outputs as `front`); and the EDGES rows of
    the input.
    """

    flow: Flow
    dead_letters: bool = False

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        lines = JsonLines(self.flow, self.dead_letters)
        compared = 0
        counts = [0] * len(KINDS)
        for _, run in groupby(rows, key=itemgetter(2)):
            expected: dict[tuple[int, Label], str] = {}
            found: dict[tuple[int, Label], list[tuple[int, str]]] = {}
            findings: list[Row] = []
            for row in run:
                if row[0] == OUTPUT:
                    for item, line in map(lines.encode_item, from_blob(row[4])):
                        expected[item.sink, item.label] = line
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
                counts[kind] += 1
                if counts[kind] <= EXAMPLES:
                    yield finding
        for kind, count in enumerate(counts):
            yield COMPARED, kind, count, compared, b""


def _compare(
    expected: dict[tuple[int, Label], str], found: dict[tuple[int, Label], list[tuple[int, str]]]
) -> Iterator[Row]:
    """Yield the findings of one time.

    Both arguments by (sink, label). `expected`: lines; `found`: (number of the share, line) each.
    """
    for (sink, label), text in expected.items():
        copies = found.pop((sink, label), [])
        if not copies:
            yield _finding("missing", sink, label, text, "", "")
            continue
        if not any(is_same_line(text, line) for _, line in copies):
            yield _finding("different", sink, label, text, copies[0][1], copies[0][0])
        for number, again in copies[1:]:
            yield _finding("extra", sink, label, text, again, number)
    for (sink, label), copies in found.items():
        for number, text in copies:
            yield _finding("extra", sink, label, "", text, number)


def _finding(
    kind: str, sink: int, label: Label, expected: str, found: str, where: str | int
) -> Row:
    details = pack((label, expected[:TEXT_SHOWN], found[:TEXT_SHOWN], where))
    return FINDING, KINDS.index(kind), label[0] if label else 0, sink, details


def _lines(payload: bytes) -> Iterator[tuple[int, Label, str]]:
    """Yield (number of the share, label, line) for each line of a FOUND row."""
    match unpack(payload):
        case (int(number), tuple(texts)):
            for label, text in texts:
                yield number, label, text


def _report(flow: Flow, shares: Sequence[OutputShare], rows: Iterable[Row]) -> AuditReport:
    """Make the report from the rows of `CompareTask`; check the order between shares of a file."""
    report = AuditReport()
    names = JsonLines(flow).names
    edges: dict[tuple[int, int], tuple[Label, Label]] = {}
    findings: list[Finding] = []
    for _, kind, time, front, payload in rows:
        match unpack(payload) if payload else None:
            case None:
                report.counts[KINDS[kind]] += time
                report.items += front if kind == 0 else 0
            case (tuple(first), tuple(last)):
                edges[time, front] = first, last
            case (tuple(label), str(expected), str(text), where):
                file = shares[where].file if isinstance(where, int) else str(where)
                name = flow.vertices[front].name if KINDS[kind] == "state" else names[front]
                findings.append(Finding(KINDS[kind], name, label, expected, text, file))
    for (number, sink), (first, _) in sorted(edges.items()):
        file = shares[number].file
        before = edges.get((number - 1, sink))
        if before is not None and file == shares[number - 1].file and first < before[1]:
            report.counts["out_of_order"] += 1
            shown = f"behind {list(before[1])}"
            findings.append(Finding("out_of_order", names[sink], first, "", shown, file))
    findings.sort(key=lambda finding: (finding.kind, finding.label))
    for _, of_kind in groupby(findings, key=lambda finding: finding.kind):
        report.examples += list(of_kind)[:EXAMPLES]
    return report
