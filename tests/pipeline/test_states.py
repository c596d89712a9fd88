"""What a savepoint holds, as rows; and rows as a savepoint."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from driftline.deploy.simulation.scenarios.flows import records
from driftline.engine.errors import PayloadError, SnapshotDamaged, StateMismatch
from driftline.engine.flow.loading import load_flow
from driftline.engine.reference import run_reference
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.sources import ListSource
from driftline.pipeline.running.runner import run
from driftline.pipeline.states import from_json, read_state, to_json, write_state
from tests.pipeline.running.test_runner import as_lines, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENTS: list[object] = [
    {"id": "a", "text": "to be or not to be"},
    {"id": "b", "text": "to do"},
    {"id": "c", "text": "быть to"},
]


def test_the_posting_lists_of_an_index_can_be_asked_by_sql(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = load_flow("driftline.index")
    run(flow, spark, [ListSource(DOCUMENTS)], tmp_path / "o", save=tmp_path / "s")
    read_state(spark, open_savepoint(tmp_path / "s"), flow).createOrReplaceTempView("state")
    found = spark.sql(
        "SELECT get_json_object(slot, '$') AS document, from_json(value, 'array<int>') AS places "
        "FROM state WHERE key = '\"to\"' ORDER BY slot"
    ).collect()
    assert [(row["document"], row["places"]) for row in found] == [
        ("a", [0, 4]),
        ("b", [0]),
        ("c", [1]),
    ]


def test_the_state_of_a_flow_in_a_file_can_be_asked(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(
        "from driftline import Flow, ValueState\n"
        "def put(value, last):\n    last.set(value)\n    return value\n"
        "flow = Flow('f')\n"
        "flow.source('in').key_by(lambda v: v).scan(put, ValueState('last'), name='op').sink()\n"
    )
    flow = load_flow(str(tmp_path / "f.py"))
    run(flow, spark, [ListSource(["a", "b"])], tmp_path / "o", save=tmp_path / "s")
    rows = read_state(spark, open_savepoint(tmp_path / "s"), flow)
    assert sorted(row["value"] for row in rows.collect()) == ['"a"', '"b"']
    made = write_state(rows, flow, 3, tmp_path / "again")
    assert made.time == 3


def test_a_changed_savepoint_is_gone_on_from(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.index")
    source = ListSource(DOCUMENTS)
    run(flow, spark, [source], tmp_path / "o", until=3, save=tmp_path / "s")
    rows = read_state(spark, open_savepoint(tmp_path / "s"), flow)
    without_a = rows.where(rows["slot"] != to_json("a"))
    start = write_state(without_a, flow, 3, tmp_path / "without-a")
    run(flow, spark, [source], tmp_path / "rest", since=3, start=start)
    expected = run_reference(flow, [DOCUMENTS[1:]])
    lengths = [(line.split('"word": "')[1][:2], line[-3]) for line in written(tmp_path / "rest")]
    assert sorted(lengths) == sorted(
        (item.value[0][:2], str(item.value[3]))  # type: ignore[index]
        for item in expected
        if item.label[0] == 2
    )


def test_every_type_of_state_survives(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.deploy.simulation.scenarios.flows:two_stages")
    found = records(Random(7), 50, 0)
    source = ListSource(found)
    run(flow, spark, [source], tmp_path / "first", until=30, save=tmp_path / "s")
    rows = read_state(spark, open_savepoint(tmp_path / "s"), flow)
    start = write_state(rows, flow, 30, tmp_path / "again")
    run(flow, spark, [source], tmp_path / "rest", since=30, start=start)
    both = written(tmp_path / "first") + written(tmp_path / "rest")
    assert sorted(both) == as_lines(flow, list(run_reference(flow, [found])))


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "мир", b"\x00\xff", (1, ("a", b"b")), ()])
def test_values_of_states_as_json(value: object) -> None:
    again = from_json(to_json(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("text", ["", "{", '{"value": 1', "[" * 200_000])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(PayloadError, match="no value of a state"):
        from_json(text)


def test_what_is_no_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.index")
    rows = spark.createDataFrame(
        [(0, "index", "nonsense", '"a"', '"b"', "1")],
        "group int, operator string, state string, key string, slot string, value string",
    )
    with pytest.raises(PayloadError, match="operator 'index' has no state 'nonsense'"):
        write_state(rows, flow, 1, tmp_path / "s")
    with pytest.raises(PayloadError, match="no value of a state"):
        from_json("{")


def test_a_savepoint_is_checked(spark: SparkSession, tmp_path: Path) -> None:
    flow = load_flow("driftline.index")
    run(flow, spark, [ListSource(DOCUMENTS)], tmp_path / "o", save=tmp_path / "s")
    found = open_savepoint(tmp_path / "s")
    with pytest.raises(StateMismatch, match="another flow"):
        read_state(spark, found, load_flow("driftline.deploy.simulation.scenarios.flows:counts"))
    name = next(iter(found.files))
    (tmp_path / "s" / name).write_bytes(b"x")
    with pytest.raises(SnapshotDamaged, match=f"{name} is damaged"):
        run(flow, spark, [ListSource(DOCUMENTS)], tmp_path / "p", since=4, start=found)
    manifest = tmp_path / "s" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"time": 4', '"time": 5'))
    with pytest.raises(SnapshotDamaged, match=r"manifest.json is damaged"):
        open_savepoint(tmp_path / "s")
