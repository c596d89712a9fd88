"""Spark, the nodes and the reference interpreter give the same outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from itertools import count, islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import driftline
from driftline import FlowTest
from driftline.connectors.files import open_source
from driftline.connectors.inputs import open_files
from driftline.connectors.sinks import JsonLinesConsumer
from driftline.connectors.sinks.lines import DEAD_LETTERS, JsonLines
from driftline.deploy.local.reference import run_reference_to
from driftline.deploy.local.report import EndStatus
from driftline.deploy.local.verify import verify_run
from driftline.engine.errors import (
    FlowError,
    FunctionFailed,
    InputError,
    PayloadError,
    SnapshotDamaged,
    StateMismatch,
)
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.flow_graph import PATH_LENGTH_MAX
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.streams import Stream
from driftline.engine.reference import run_reference
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.sources import ListSource
from driftline.engine.sources.record import DEFAULT_FORMAT
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import RECORD_DEPTH_MAX
from driftline.pipeline.audit import audit as audit_outputs
from driftline.pipeline.runner import run as run_on_spark
from driftline.simulation.scenarios.drawn import draw_flow
from driftline.simulation.scenarios.flows import SIMULATED, records
from tests.careless.flows import ALL as CARELESS
from tests.examples.inputs import NAMES
from tests.examples.inputs import records as example_records
from tests.pipeline import hourly
from tests.pipeline.flows import SmallFlow, build, inputs, smalls
from tests.stepped_cluster import SteppedCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES, IN_ONE_JOB = 2, 9

run = partial(run_on_spark, partitions=3)  # the default is more: one per task
audit = partial(audit_outputs, partitions=3)
"""Number of jobs, and of random flows that share one: a job costs a second."""


def as_lines(flow: Flow, items: list[Item]) -> list[str]:
    lines = JsonLines(flow)
    return sorted(f"{lines.names[item.sink]} {lines.format(item)}" for item in items)


def written(directory: Path) -> list[str]:
    """Return the outputs of a run on Spark; check that every file is in label order."""
    found = []
    for path in directory.rglob("*.jsonl"):
        texts = path.read_text().split("\n")[:-1]
        labels = [json.loads(text)["t"] for text in texts]
        assert labels == sorted(labels)
        name = path.parent.name if path.parent != directory else path.name.split("-spark-")[0]
        found += [f"{name} {text}" for text in texts]
    return sorted(found)


def on_spark(
    spark: SparkSession, flow: Flow, found: list[list[object]], partitions: int
) -> list[str]:
    sources = [ListSource(payloads) for payloads in found]
    with TemporaryDirectory() as directory:
        run(flow, spark, sources, Path(directory) / "o", partitions=partitions, dead_letters=True)
        return written(Path(directory) / "o")


def on_nodes(flow: Flow, found: list[list[object]], seed: int) -> list[Item]:
    timed = [list(enumerate(payloads, 1)) for payloads in found]
    cluster = SteppedCluster(flow, timed, seed, dead_letters=True)
    cluster.run(cluster.stopped, steps=200_000)
    return cluster.items


def seed_has_timers(seed: int) -> bool:
    flow = draw_flow(seed, loops=False)
    return any(vertex.on_timer is not None for vertex in flow.vertices)


@settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),  # a case takes seconds, so failures are not minimised
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    cases=st.lists(smalls(), min_size=IN_ONE_JOB, max_size=IN_ONE_JOB),
    seed=st.integers(0, 99),
    partitions=st.sampled_from((1, 2, 7)),
)
def test_random_flows_equal_the_reference(
    spark: SparkSession, cases: list[SmallFlow], seed: int, partitions: int
) -> None:
    flow, found = build(cases), inputs(cases)
    expected = as_lines(flow, list(run_reference(flow, found, dead_letters=True)))
    assert on_spark(spark, flow, found, partitions) == expected
    assert as_lines(flow, on_nodes(flow, found, seed)) == expected


@pytest.mark.parametrize("spec", [simulated.spec for simulated in SIMULATED])
def test_simulation_flows_equal_the_reference(spark: SparkSession, spec: str) -> None:
    flow = load_flow(spec)
    found = [records(Random(front), 40, front) for front in range(len(flow.sources))]
    expected = as_lines(flow, list(run_reference(flow, found, dead_letters=True)))
    assert on_spark(spark, flow, found, 3) == expected


TIMED_SEEDS = [*islice(filter(seed_has_timers, count()), 5)]


@pytest.mark.parametrize("seed", TIMED_SEEDS)
def test_windows_timers_joins_and_ttl_equal_the_reference(spark: SparkSession, seed: int) -> None:
    flow = draw_flow(seed, loops=False)
    found = [records(Random(front), 60, front) for front in range(len(flow.sources))]
    expected = as_lines(flow, list(run_reference(flow, found, dead_letters=True)))
    assert on_spark(spark, flow, found, 1 + seed % 3) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if name != "connected_components"])
def test_examples_equal_the_reference(spark: SparkSession, name: str) -> None:
    flow = load_flow(str(Path(__file__).parents[2] / "examples" / f"{name}.py"))
    found: list[list[object]] = [[*each] for each in example_records(name, Random(5))]
    expected = as_lines(flow, list(run_reference(flow, found, dead_letters=True)))
    assert on_spark(spark, flow, found, 2) == expected


def test_iteration_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow(str(Path(__file__).parents[2] / "examples" / "connected_components.py"))
    with pytest.raises(FlowError, match="iterate 'iterate-2' sends messages to itself"):
        run(flow, spark, [ListSource([])], tmp_path / "o")


def test_windows_continue_after_history_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Rows, timers and watermarks continue from a savepoint, on Spark and on nodes."""
    flow, found = hourly.flow, hourly.records()
    expected = as_lines(flow, list(run_reference(flow, [found])))
    source = ListSource(found)
    save = tmp_path / "save"
    run(flow, spark, [source], tmp_path / "history", partitions=3, until=121, save=save)
    start = open_savepoint(save)
    assert start.time == 121
    rest = run(flow, spark, [source], tmp_path / "rest", partitions=2, since=121, start=start)
    assert rest.records == len(found) - 120
    history = written(tmp_path / "history")
    assert sorted(history + written(tmp_path / "rest")) == expected
    report = audit(
        flow, spark, [source], [tmp_path / "history"], until=121, end=start, partitions=2
    )
    assert report.is_clean, report.text()

    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in found))
    command = f"-m driftline run tests.pipeline.hourly --input {path} --output {tmp_path / 'nodes'}"
    options = f"--from-savepoint {save} --nodes 2"
    subprocess.run([sys.executable, *f"{command} {options}".split()], check=True)
    on_two_nodes = [
        f"{file.name.rpartition('-')[0]} {line}"
        for file in (tmp_path / "nodes").glob("*-?.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted(history + on_two_nodes) == expected


def test_run_after_history_must_start_from_its_savepoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, out = load_flow("driftline.simulation.scenarios.flows:two_stages"), tmp_path / "out"
    found = records(Random(3), 20, 0)
    run(flow, spark, [ListSource(found)], out, partitions=1, until=11, save=tmp_path / "at-11")
    with pytest.raises(StateMismatch, match=r"before record 11.*--from-savepoint .*/at-11\."):
        driftline.run(flow, [found], out)
    verdict = verify_run(out, None, lambda state, run: None)
    assert verdict.ending.status is EndStatus.NOT_BEGUN
    assert "outputs before record 11" in verdict.checked[0].summary
    of_run = "digest|exactly-once|1|in.jsonl|from at-11 at 11"
    JsonLinesConsumer(out, "barrier-0", flow, of_run).close()
    changed = next(out.glob("*-spark-*"))
    changed.write_bytes(changed.read_bytes().replace(b"1", b"2"))
    [problem] = verify_run(out, None, lambda state, run: None).problems
    assert "it was changed or damaged" in problem


def test_the_longest_flow_runs_everywhere(spark: SparkSession) -> None:
    """The last function walks through the deepest record, so the stack is as deep as possible."""

    def depth(value: object) -> int:
        return 1 + sum(map(depth, value)) if isinstance(value, tuple) else 0

    flow, record = Flow("longest"), cast("object", "leaf")
    for _ in range(RECORD_DEPTH_MAX):
        record = [record]
    stream: Stream[object] = flow.source("in")
    for number in range(PATH_LENGTH_MAX - 4):
        stream = stream.map(lambda value: value)
        if number == 20:
            stream = stream.key_by(depth).distinct()
    stream.map(depth).sink("out")
    expected = as_lines(flow, list(run_reference(flow, [[record]])))
    assert expected == [f'out {{"t": [1, 0, 0], "value": {RECORD_DEPTH_MAX}}}']
    assert as_lines(flow, list(driftline.run(flow, [[record]]))) == expected
    test = FlowTest(flow)
    test.send(record)
    assert test.take("out") == [RECORD_DEPTH_MAX]
    assert on_spark(spark, flow, [[record]], 1) == expected


def test_failing_function_is_reported_as_on_nodes(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.simulation.scenarios.flows:failing")
    source = ListSource(records(Random(1), 30, 0))
    with pytest.raises(FunctionFailed, match=r"operator 'scan-1' failed at label .*\n.*record:"):
        run(flow, spark, [source], tmp_path / "o")
    assert not list((tmp_path / "o").glob("*.jsonl"))


def test_unencodable_outputs_are_dead_letters_as_in_the_reference(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Flow("odd")
    odd = {2: float("nan"), 3: b"bytes", 5: {1: 1}}
    flow.source("in").map(lambda n: (n, odd.get(n, "even"))).sink("pairs")
    source = ListSource([1, 2, 3, 4, 5])
    with pytest.raises(PayloadError, match=r"sink 'pairs' .*--on-error dead-letter"):
        run(flow, spark, [source], tmp_path / "ended")
    ran = run(flow, spark, [source], tmp_path / "out", dead_letters=True)
    assert ran.outputs == {"pairs": 2, DEAD_LETTERS: 3}
    run_reference_to(flow, [source], tmp_path / "wanted", dead_letters=True)
    for pattern in ("*.jsonl", "dead-letters/*.jsonl"):
        found = [line for f in (tmp_path / "out").glob(pattern) for line in lines_of(f)]
        [wanted] = (tmp_path / "wanted").glob(pattern)
        assert sorted(found) == sorted(lines_of(wanted))
    assert audit(flow, spark, [source], [tmp_path / "out"], dead_letters=True).is_clean


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_bad_record_is_reported_with_file_and_number(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"text": "a"}\n{"text"\n')
    flow = load_flow("driftline.index")
    with pytest.raises(InputError, match=r"some.jsonl, record 2: malformed JSON"):
        run(flow, spark, [open_source(path)], tmp_path / "o")
    ran = run(flow, spark, [open_source(path)], tmp_path / "p", dead_letters=True)
    assert (ran.records, ran.bad_records, ran.outputs) == (1, 1, {"changes": 1})
    [aside] = (tmp_path / "p" / "dead-letters").iterdir()
    assert json.loads(aside.read_text())["record"] == 2


def test_outputs_of_another_run_are_not_touched(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "changes-0.jsonl").write_text("")
    with pytest.raises(StateMismatch, match="already holds outputs"):
        run(load_flow("driftline.index"), spark, [ListSource([])], tmp_path)


def test_functions_of_a_flow_file_are_shipped_to_tasks(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(
        "from driftline import Flow, ValueState\n"
        "def put(value, last):\n    last.set(value)\n    return value\n"
        "flow = Flow('f')\n"
        "flow.source('in').key_by(lambda v: v).scan(put, ValueState('last'), name='op').sink()\n"
    )
    flow = load_flow(str(tmp_path / "f.py"))
    ran = run(flow, spark, [ListSource(["a", "b"])], tmp_path / "o", save=tmp_path / "s")
    assert (ran.records, open_savepoint(tmp_path / "s").time) == (2, 3)


def test_a_savepoint_is_checked(spark: SparkSession, tmp_path: Path) -> None:
    flow, source = load_flow("driftline.index"), ListSource([{"id": "a", "text": "to be"}])
    run(flow, spark, [source], tmp_path / "o", save=tmp_path / "s")
    found = open_savepoint(tmp_path / "s")
    other = load_flow("driftline.simulation.scenarios.flows:counts")
    with pytest.raises(StateMismatch, match="does not hold the state of flow"):
        run(other, spark, [source], tmp_path / "p", since=2, start=found)
    name = next(iter(found.files))
    (tmp_path / "s" / name).write_bytes(b"x")
    with pytest.raises(SnapshotDamaged, match=f"{name} is damaged"):
        run(flow, spark, [source], tmp_path / "p", since=2, start=found)
    manifest = tmp_path / "s" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"time": 2', '"time": 3'))
    with pytest.raises(SnapshotDamaged, match=r"manifest.json is damaged"):
        open_savepoint(tmp_path / "s")


HASHED = "sets"
"""Its order is that of hashes, which a command fixes, but the test process does not."""


@pytest.mark.parametrize("name", [name for name in CARELESS if name != HASHED])
def test_careless_functions_give_the_reference_outputs(spark: SparkSession, name: str) -> None:
    flow = load_flow(CARELESS[name])
    found = [records(Random(7), 60, 0)]
    wanted = as_lines(flow, list(run_reference(flow, found, dead_letters=True)))
    assert on_spark(spark, flow, found, 3) == wanted


def test_unreadable_input_fails_the_job(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,word\n1,tea\n")
    (tmp_path / "2.csv").write_text("id,id\n2,milk\n")
    (tmp_path / "3.csv").write_text("id,word\n3,rice\n")
    flow = Flow("words")
    flow.source("in").sink("words")
    source = open_files([str(tmp_path)], DEFAULT_FORMAT, "Spark")
    after = r"2\.csv, record 2: the header has .* the files after it are not read \(3\.csv\)"
    with pytest.raises(InputError, match=after):
        run(flow, spark, [source], tmp_path / "o", dead_letters=True)
    ran = run(flow, spark, [source], tmp_path / "begun", dead_letters=True, until=2)
    assert ran.outputs == {"words": 1}
