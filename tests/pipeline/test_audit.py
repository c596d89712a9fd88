"""The audit reports all differences of a consumer's outputs, and nothing else."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from driftline.connectors.files import open_source
from driftline.connectors.files import splits as splits_module
from driftline.connectors.logs.inputlog import InputLog, WriteGroup
from driftline.connectors.logs.received import ReceivedSource
from driftline.connectors.sinks import JsonLinesConsumer
from driftline.connectors.sinks.lines import JsonLines
from driftline.connectors.sinks.lmdb import LmdbConsumer
from driftline.engine.errors import InputError, StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import load_flow
from driftline.engine.labels import Label
from driftline.engine.operators.steps import FAILURES
from driftline.engine.reference import run_reference
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.sources import ListSource
from driftline.engine.texts import format_time
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.messages import Bundle
from driftline.pipeline.audit import AuditReport
from driftline.pipeline.audit import audit as audit_outputs
from driftline.pipeline.commands import Sessions
from driftline.pipeline.commands import spark as command
from driftline.pipeline.output_shares import _label, is_same_line
from driftline.pipeline.runner import run as run_on_spark
from driftline.simulation.scenarios.flows import records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND = records(Random(5), 60, 0)

run = partial(run_on_spark, partitions=3)  # the default is more: one per task
audit = partial(audit_outputs, partitions=3)


def bundles(flow: Flow, count: int = 3) -> list[Bundle]:
    """Return FOUND as one barrier delivers it, in several bundles."""
    items = list(run_reference(flow, [FOUND], dead_letters=True))
    times = sorted({item.label[0] for item in items})
    made = []
    for i in range(count):
        some = times[len(times) * i // count : len(times) * (i + 1) // count]
        blobs = []
        for time in some:
            of_time = [item for item in items if item.label[0] == time]
            labels = [item.label for item in of_time]
            sinks = [item.sink for item in of_time]
            blobs.append(to_blob(labels, sinks, [item.value for item in of_time]))
        made.append(Bundle("barrier-0", 1, (0, 127), tuple(blobs), some[-1], 0))
    return made


def lines_of(flow: Flow, directory: Path) -> Path:
    """Write FOUND as a run on one node does; return the file of the first sink."""
    consumer = JsonLinesConsumer(directory, "barrier-0", flow, "test")
    for bundle in bundles(flow):
        consumer.deliver(bundle)
    consumer.close()
    return consumer.paths[0]


def audit_of(spark: SparkSession, flow: Flow, directory: Path) -> AuditReport:
    source = ListSource(FOUND)
    return audit(flow, spark, [source], [directory], dead_letters=True)


def test_audit_of_delivered_outputs_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.simulation.scenarios.flows:failing")
    lines_of(flow, tmp_path)
    report = audit_of(spark, flow, tmp_path)
    assert report.is_clean
    assert report.items == len(list(run_reference(flow, [FOUND], dead_letters=True)))


def damaged(lines: list[str]) -> tuple[list[str], set[tuple[str, Label]]]:
    """Return the lines with one damage of each kind, and the findings: (kind, label)."""
    labels = [tuple(json.loads(line)["t"]) for line in lines]
    found = list(lines)
    found[20], found[21] = lines[21], lines[20]
    found[30] = lines[30].replace('"a"', '"x"').replace('"b"', '"x"').replace('"c"', '"x"')
    found[40] = json.dumps(json.loads(lines[40]), separators=(",", ":")) + "\n"  # as before
    found[-1] = lines[-1][:9]
    found.insert(12, lines[12])
    del found[7]
    return found, {
        ("missing", labels[7]),
        ("extra", labels[12]),
        ("out_of_order", labels[20]),
        ("different", labels[30]),
        ("missing", labels[-1]),
        ("extra", ()),
    }


def test_each_kind_of_damage_is_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits_module, "SPLIT_BYTES_MIN", 64)  # the file is read in many pieces
    flow = load_flow("driftline.simulation.scenarios.flows:concatenation")
    path = lines_of(flow, tmp_path)
    lines, expected = damaged(path.read_text().splitlines(keepends=True))
    path.write_text("".join(lines))
    report = audit_of(spark, flow, tmp_path)
    assert {(finding.kind, finding.label) for finding in report.examples} == expected
    assert {kind: count for kind, count in report.counts.items() if count} == {
        "missing": 2,
        "extra": 2,
        "out_of_order": 1,
        "different": 1,
    }


def test_lmdb_outputs_are_audited(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.simulation.scenarios.flows:two_stages")
    consumer = LmdbConsumer(tmp_path / "lmdb", "barrier-0", flow, "test")
    for bundle in bundles(flow):
        consumer.deliver(bundle)
    consumer.close()
    assert audit_of(spark, flow, tmp_path / "lmdb").is_clean


def test_audit_compares_the_state_of_the_end_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.simulation.scenarios.flows:concatenation")
    lines_of(flow, tmp_path / "o")
    source = [ListSource(FOUND)]
    run(flow, spark, source, tmp_path / "p", until=20, save=tmp_path / "1")
    start = open_savepoint(tmp_path / "1")
    run(flow, spark, source, tmp_path / "q", since=20, until=40, start=start, save=tmp_path / "2")
    end = open_savepoint(tmp_path / "2")
    outputs = [tmp_path / "o"]
    report = audit(flow, spark, source, outputs, since=20, until=40, start=start, end=end)
    assert (report.is_clean, report.items) == (True, 20)

    first = FOUND[0]
    assert isinstance(first, dict)
    other: list[object] = [{**first, "key": "x"}, *FOUND[1:]]
    run(flow, spark, [ListSource(other)], tmp_path / "r", until=40, save=tmp_path / "3")
    wrong = open_savepoint(tmp_path / "3")
    report = audit(flow, spark, source, outputs, since=20, until=40, start=start, end=wrong)
    assert {kind: count for kind, count in report.counts.items() if count} == {"state": 2}
    assert {(f.kind, f.location, bool(f.expected), bool(f.found)) for f in report.examples} == {
        ("state", "key 'x'", False, True),
        ("state", f"key {first['key']!r}", True, True),
    }


def test_audit_reads_inputs_from_the_input_log(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.simulation.scenarios.flows:concatenation")
    log = InputLog(tmp_path / "log", "test")
    source = ReceivedSource(log, lambda: 1000)
    for number, record in enumerate(FOUND, 1):
        source.receive("producer", number, record)
    group = source.next_group()
    assert group is not None
    log.write(group)
    log.close()
    logged = open_source(tmp_path / "log")
    run(flow, spark, [logged], tmp_path / "o")
    report = audit(flow, spark, [logged], [tmp_path / "o"])
    assert (report.is_clean, report.items) == (True, 60)

    time = group.entries[29].time
    run(flow, spark, [logged], tmp_path / "p", until=time, save=tmp_path / "day-1")
    log = InputLog(tmp_path / "log", "test")
    log.write(WriteGroup((), group.reserved, trim=time))
    log.close()
    with pytest.raises(InputError, match=f"records before {format_time(time)} were removed"):
        audit(flow, spark, [logged], [tmp_path / "o"])
    start = open_savepoint(tmp_path / "day-1")
    report = audit(flow, spark, [logged], [tmp_path / "o"], since=time, start=start)
    assert (report.is_clean, report.items) == (True, 31)


def test_audit_rejects_files_that_are_not_outputs_of_the_flow(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = load_flow("driftline.index")
    with pytest.raises(Unavailable, match="is not a directory: give the output directory"):
        audit_of(spark, flow, tmp_path / "nowhere")
    with pytest.raises(Unavailable, match="holds no outputs"):
        audit_of(spark, flow, tmp_path)
    lines_of(flow, tmp_path / "found")
    with pytest.raises(Unavailable, match="holds no outputs"):
        audit(flow, spark, [ListSource(FOUND)], [tmp_path / "found", tmp_path])
    (tmp_path / "others-0.jsonl").write_text("")
    with pytest.raises(StateMismatch, match="belongs to none of the sinks"):
        audit_of(spark, flow, tmp_path)


def test_audit_exit_status_distinguishes_clean_wrong_and_failed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sessions, "start", lambda self, what, **_: nullcontext(spark))
    path, output, report = (tmp_path / name for name in ("in.jsonl", "out", "report.json"))
    path.write_text('{"text": "to be"}\n')

    def exit_status() -> int:
        files = "--input", str(path), "--output", str(output), "--json", str(report)
        options = *files, "--partitions", "2"
        return CliRunner().invoke(command, ["audit", "driftline.index", *options]).exit_code

    assert exit_status() == 2
    run(load_flow("driftline.index"), spark, [open_source(path)], output)
    assert exit_status() == 0
    [changes] = [p for p in output.glob("*.jsonl") if "be" in p.read_text()]
    changes.write_text(changes.read_text() + '{"t": [9, 0, 0], "value": null}\n')
    assert exit_status() == 1
    found = json.loads(report.read_text())
    assert (found["items"], found["missing"], found["extra"]) == (2, 0, 1)
    assert found["examples"][0]["t"] == [9, 0, 0]


def test_audit_covers_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.simulation.scenarios.flows:failing")
    lines_of(flow, tmp_path)
    path = tmp_path / "dead-letters" / "0.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[1:]))
    report = audit_of(spark, flow, tmp_path)
    assert report.counts["missing"] == 1
    assert report.examples[0].sink == JsonLines(flow).names[FAILURES]


@pytest.mark.parametrize("line", ["", "{", "7", '{"t": 7}', '{"t": ["a", 1]}', "[" * 200_000])
def test_malformed_line_has_no_label_and_equals_no_other(line: str) -> None:
    assert _label(line) is None
    assert not is_same_line('{"t": [1, 0]}', line)
