"""The audit: recompute the outputs of a flow, and compare them with those that a consumer stored.

A flow is deterministic, so its input determines its outputs: the audit proves exactly-once, or
counts every difference. Tasks compare expected and stored outputs time by time, and send only
counts and examples to the driver; so the outputs may be of any size.

missing        the consumer lacks an output
extra          the consumer has an output that the flow does not produce, a duplicate, or a line
               without a readable label
different      an output with the right label and a wrong value
out_of_order   an output whose predecessor, among the outputs of its sink in its file, has a larger
               label
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
from driftline.pipeline.runner import prepare_settings, result_rows
from driftline.pipeline.tasks import (
    OUTPUT,
    SCHEMA,
    STATE,
    Batches,
    Row,
    map_partitions,
    numbers,
    read_numbers,
    read_rows,
    reraise_task_errors,
    write_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORED, SHARE_BOUNDS, FINDING, COUNTS = -10, -11, -12, -13
"""Kinds of rows, besides those of `pipeline.tasks`. Their columns hold:

to            partition       time                      front    payload
STORED        0               time of the lines         sink     (share, ((label, line), ...))
SHARE_BOUNDS  0               share                     sink     (first label, last label)
FINDING       finding's kind  time; 0 without label     sink     (label, expected, found, location)
COUNTS        finding's kind  number of findings        outputs  b""

A share is given as its index in the list of shares, a sink as its number, and a finding's kind as
its index in KINDS. The location is a share, a path, a key, or "". In a FINDING of the kind "state",
`time` is the key group, and `front` the number of the operator. In COUNTS, "outputs" is the number
of outputs that the task compared.
"""

KINDS = ("missing", "extra", "out_of_order", "different", "state")
"""Kinds of findings."""

EXAMPLES = 10
"""Maximum number of findings of each kind in the report, and from each `CompareTask`."""


class Finding(Struct, frozen=True):
    """One wrong output, or one wrong state."""

    kind: str
    """One of KINDS."""
    sink: str
    """The name of the sink, or of the operator whose state is wrong."""
    label: Label
    """() for a wrong state, and for a line without a readable label."""
    expected: str
    """The line that the flow produces, or slots that the saved state lacks; "" if none."""
    found: str
    """The consumer's line, what is wrong in the order, or slots that only the saved state has; ""
    if none."""
    location: str
    """The path of the file, or the key of a wrong state; "" for a missing output."""

    def as_json(self) -> dict[str, object]:
        """Return the finding as a JSON object."""
        return {
            "kind": self.kind,
            "sink": self.sink,
            "t": list(self.label),
            "expected": self.expected,
            "found": self.found,
            "file": self.location,
        }


class AuditReport(Struct):
    """The result of an audit."""

    items: int = 0
    """Number of outputs of the flow that were compared."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """Kind -> number of findings."""
    examples: list[Finding] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings: outputs, their order and the end state are right."""
        return not any(self.counts.values())

    def text(self) -> str:
        """Return the report as lines of text."""
        counts = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in self.counts.items()]
        verdict = "clean" if self.is_clean else ", ".join(counts)
        lines = [f"{self.items:,} outputs compared: {verdict}"]
        for finding in self.examples:
            location = f", {finding.location}" if finding.location else ""
            label = f" {list(finding.label)}" if finding.label else ""
            lines.append(f"{finding.kind}: {finding.sink}{label}{location}")
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

    `outputs`: the directories. `end`: a savepoint with the state as of `until`, which is also
    compared. The other arguments are those of `pipeline.runner.run`. Raises its errors and those of
    `shares_of`.
    """
    from pyspark.sql import functions as f

    settings = prepare_settings(
        TaskSettings(flow, partitions, dead_letters, since, until, start, compare_with=end)
    )
    shares = shares_of(outputs, flow, 2 * spark.sparkContext.defaultParallelism)
    with reraise_task_errors():
        expected = result_rows(settings, spark, inputs).where(f.col("to").isin(OUTPUT, STATE))
        read_stored = ReadStored(flow, shares, since, until)
        stored = map_partitions(numbers(spark, len(shares)), read_stored, SCHEMA)
        partition = f.expr(f"cast(pmod(time, {settings.partitions}) as int)")
        rows = expected.union(stored).repartitionById(settings.partitions, partition)
        rows = rows.sortWithinPartitions("time", "to")
        results = map_partitions(rows, CompareTask(flow, dead_letters), SCHEMA).collect()
    found = [(r.to, r.partition, r.time, r.front, bytes(r.payload)) for r in results]
    return _report(flow, shares, found)


class ReadStored(Struct, frozen=True):
    """Task that reads shares of a consumer's outputs. Input: rows with the number of a share.

    Output: STORED rows and "out_of_order" findings for times in [since, until); a finding "extra"
    for each line without a readable label; a SHARE_BOUNDS row for each share and sink.
    """

    flow: Flow
    shares: Sequence[OutputShare]
    since: int
    until: int

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(batches))

    def _rows(self, batches: Batches) -> Iterator[Row]:
        for number in read_numbers(batches):
            yield from self._rows_of_share(number)

    def _rows_of_share(self, number: int) -> Iterator[Row]:
        share = self.shares[number]
        first_labels: dict[int, Label] = {}
        last_labels: dict[int, Label] = {}
        for (sink, time), lines_of_time in groupby(
            share.lines(self.flow), key=lambda line: (line[0], line[1][0] if line[1] else -1)
        ):
            lines = []
            for _, label, text in lines_of_time:
                if label is None:
                    yield _finding("extra", sink, (), "", text, share.file)
                    continue
                first_labels.setdefault(sink, label)
                previous = last_labels.get(sink, label)
                if label < previous and self.since <= time < self.until:
                    problem = _order_problem(previous)
                    yield _finding("out_of_order", sink, label, "", problem, share.file)
                last_labels[sink] = label
                lines.append((label, text))
            if lines and self.since <= time < self.until:
                yield STORED, 0, time, sink, pack((number, tuple(lines)))
        for sink, label in first_labels.items():
            yield SHARE_BOUNDS, 0, number, sink, pack((label, last_labels[sink]))


class CompareTask(Struct, frozen=True):
    """Task that compares expected and stored outputs of each time.

    Input: OUTPUT and STATE rows of the flow and rows of `ReadStored`, ordered by (time, to).
    Output: FINDING rows, at most EXAMPLES of each kind; a COUNTS row per kind; and the SHARE_BOUNDS
    rows of the input. Without `dead_letters`, raises PayloadError for an output that JSON cannot
    represent.
    """

    flow: Flow
    dead_letters: bool = False

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        lines = JsonLines(self.flow, self.dead_letters)
        compared = 0
        counts = [0] * len(KINDS)
        for _, rows_of_time in groupby(rows, key=itemgetter(2)):
            expected: dict[tuple[int, Label], str] = {}
            stored: dict[tuple[int, Label], list[tuple[int, str]]] = {}
            findings: list[Row] = []
            for row in rows_of_time:
                if row[0] == OUTPUT:
                    for item, line in map(lines.encode_item, from_blob(row[4])):
                        expected[item.sink, item.label] = line
                elif row[0] == STORED:
                    for share, label, text in _stored_lines(row[4]):
                        stored.setdefault((row[3], label), []).append((share, text))
                elif row[0] == FINDING:
                    findings.append(row)
                elif row[0] == STATE:
                    findings.append((FINDING, KINDS.index("state"), *row[2:]))
                else:
                    yield row
            compared += len(expected)
            findings += _compare(expected, stored)
            for finding in findings:
                kind = finding[1]
                counts[kind] += 1
                if counts[kind] <= EXAMPLES:
                    yield finding
        for kind, count in enumerate(counts):
            yield COUNTS, kind, count, compared, b""


def _compare(
    expected: dict[tuple[int, Label], str], stored: dict[tuple[int, Label], list[tuple[int, str]]]
) -> Iterator[Row]:
    """Yield the findings of one time. Removes the expected outputs from `stored`.

    `expected`: (sink, label) -> line; `stored`: (sink, label) -> [(number of the share, line)].
    """
    for (sink, label), text in expected.items():
        copies = stored.pop((sink, label), [])
        if not copies:
            yield _finding("missing", sink, label, text, "", "")
            continue
        if not any(is_same_line(text, line) for _, line in copies):
            yield _finding("different", sink, label, text, copies[0][1], copies[0][0])
        for share, copy in copies[1:]:
            yield _finding("extra", sink, label, text, copy, share)
    for (sink, label), copies in stored.items():
        for share, text in copies:
            yield _finding("extra", sink, label, "", text, share)


def _finding(
    kind: str, sink: int, label: Label, expected: str, found: str, location: str | int
) -> Row:
    details = pack((label, expected[:TEXT_SHOWN], found[:TEXT_SHOWN], location))
    return FINDING, KINDS.index(kind), label[0] if label else 0, sink, details


def _order_problem(previous: Label) -> str:
    return f"stored after the larger label {list(previous)}"


def _stored_lines(payload: bytes) -> Iterator[tuple[int, Label, str]]:
    """Yield (number of the share, label, line) for each line of a STORED row."""
    match unpack(payload):
        case (int(share), tuple(lines)):
            for label, text in lines:
                yield share, label, text


def _report(flow: Flow, shares: Sequence[OutputShare], rows: Iterable[Row]) -> AuditReport:
    """Make the report from the rows of `CompareTask`.

    Also check the order of the last output of a share and the first one of the next share of the
    same file.
    """
    report = AuditReport()
    names = JsonLines(flow).names
    bounds: dict[tuple[int, int], tuple[Label, Label]] = {}
    """(number of a share, sink) -> first and last label."""
    findings: list[Finding] = []
    for _, kind, time, front, payload in rows:
        match unpack(payload) if payload else None:
            case None:
                report.counts[KINDS[kind]] += time
                report.items += front if kind == 0 else 0  # the same in all COUNTS of a task
            case (tuple(first), tuple(last)):
                bounds[time, front] = first, last
            case (tuple(label), str(expected), str(found), location):
                place = shares[location].file if isinstance(location, int) else str(location)
                name = flow.vertices[front].name if KINDS[kind] == "state" else names[front]
                findings.append(Finding(KINDS[kind], name, label, expected, found, place))
    for (number, sink), (first, _) in sorted(bounds.items()):
        file = shares[number].file
        previous = bounds.get((number - 1, sink))
        if previous is not None and file == shares[number - 1].file and first < previous[1]:
            report.counts["out_of_order"] += 1
            problem = _order_problem(previous[1])
            findings.append(Finding("out_of_order", names[sink], first, "", problem, file))
    findings.sort(key=lambda finding: (finding.kind, finding.label))
    for _, findings_of_kind in groupby(findings, key=lambda finding: finding.kind):
        report.examples += list(findings_of_kind)[:EXAMPLES]
    return report
