"""Savepoints: damage is detected, and states map to a different flow."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from driftline.engine.errors import SnapshotDamaged, StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.keygroups import GroupCache
from driftline.engine.snapshots.merging import read_segment
from driftline.engine.snapshots.savepoint import (
    Savepoint,
    open_savepoint,
    write_manifest,
    write_table,
)
from driftline.engine.snapshots.savepoint_mapping import MappingOptions, fit
from driftline.engine.state.managed import ListState, MapState, State, ValueState
from driftline.engine.state.table import StateTable

FLOW = Flow("saved")
FLOW.source("in").key_by(0).scan(lambda *_: None, ValueState[object]("value")).sink()


def test_flipped_bit_in_a_manifest_is_reported_as_damage(tmp_path: Path) -> None:
    write_manifest(tmp_path, FLOW, 7)
    manifest = tmp_path / "manifest.json"
    data = manifest.read_bytes()
    chance = Random(1)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        manifest.write_bytes(changed)
        with pytest.raises(SnapshotDamaged, match=str(manifest.parent)):
            open_savepoint(tmp_path)


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{}", b"\xff\xfe", b"[" * 100_000])
def test_invalid_manifest_content_is_reported_as_damage(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(SnapshotDamaged, match=r"manifest\.json is damaged"):
        open_savepoint(tmp_path)


def flow_of(*operators: tuple[str, tuple[State, ...]], source: str = "in") -> Flow:
    flow = Flow("f", groups=4)
    stream = flow.source(source)
    for name, states in operators:
        stream = stream.key_by(0).process(lambda *_: (), *states, name=name)
    stream.sink()
    return flow


VALUE, LIST = ValueState[object]("v"), ListState[object]("l")
OLD = flow_of(("A/b", (VALUE, LIST)), ("a/b", (VALUE,)), ("empty", (VALUE,)))


@pytest.fixture
def savepoint(tmp_path: Path) -> Savepoint:
    """Return a savepoint: key 7's value is its operator's name; operator `empty` has no state."""
    for vertex in OLD.vertices:
        table = StateTable(vertex.states, [])
        if vertex.is_keyed and vertex.name != "empty":
            for state in table.states(7):
                state.assign(0 if state.name == "l" else None, f"{vertex.name} {state.name}")
        write_table(tmp_path, vertex, table, GroupCache(4))
    write_manifest(tmp_path, OLD, 5)
    return open_savepoint(tmp_path)


def contents(
    savepoint: Savepoint, flow: Flow, options: MappingOptions
) -> dict[tuple[str, str], object]:
    fitted = fit(savepoint, flow, options)
    return {
        (operator, state): rows[0][-1]
        for group in range(4)
        for operator, state, rows in read_segment(fitted.segment(group))
    }


def refusal(savepoint: Savepoint, flow: Flow, options: MappingOptions = MappingOptions()) -> str:  # noqa: B008
    with pytest.raises(StateMismatch) as refused:
        fit(savepoint, flow, options)
    return str(refused.value)


def test_states_swap_their_operators(savepoint: Savepoint) -> None:
    flow = flow_of(("a/b", (LIST, VALUE)), ("A/b", (VALUE,)))
    swap = MappingOptions(rename=(("A/b", "a/b"), ("a/b", "A/b")))
    assert contents(savepoint, flow, swap) == {
        ("a/b", "v"): "A/b v",
        ("a/b", "l"): "A/b l",
        ("A/b", "v"): "a/b v",
    }


def test_error_lists_all_mapping_problems(savepoint: Savepoint) -> None:
    flow = flow_of(("A/b", (MapState[object, object]("v"),)))
    expected_text = refusal(savepoint, flow, MappingOptions(drop=("nothing",)))
    assert "operator 'A/b': its state 'v', a ValueState, is a MapState now" in expected_text
    assert "operator 'A/b': its state 'l', a ListState, no longer exists" in expected_text
    assert "operator 'a/b' is not in the flow" in expected_text
    assert (
        "--drop-state nothing: the savepoint has no such state; operators with state: A/b, a/b"
        in expected_text
    )
    drop = MappingOptions(drop=("A/b.v", "A/b.l", "a/b"))
    assert contents(savepoint, flow, drop) == {}


@pytest.mark.parametrize(
    ("rename", "expected_text"),
    [
        ((("gone", "A/b"),), "the savepoint has no operator or source 'gone'"),
        ((("A/b", "gone"),), "the flow has no 'gone'"),
        ((("A/b", "a/b"),), "the savepoint also has 'a/b': rename that, or --drop-state a/b"),
        ((("A/b", "empty"), ("a/b", "empty")), "names an operator twice"),
        ((("A/b", "A/b"), ("A/b", "a/b")), "names an operator twice"),
    ],
)
def test_invalid_renaming_is_rejected_with_a_reason(
    rename: tuple[tuple[str, str], ...], expected_text: str, savepoint: Savepoint
) -> None:
    assert expected_text in refusal(savepoint, OLD, MappingOptions(rename=rename))


def test_notes_list_states_that_start_empty_and_removed_sources(savepoint: Savepoint) -> None:
    flow = flow_of(
        ("A/b", (VALUE, LIST, MapState[object, object]("m"))),
        ("a/b", (VALUE,)),
        ("empty", (VALUE,)),
        ("new", (VALUE,)),
        source="other",
    )
    assert fit(savepoint, flow).notes == (
        "state 'm' of operator 'A/b' starts empty",
        "operator 'new' starts empty",
        "source 'in' is no longer in the flow",
    )


def test_other_key_groups_are_refused(savepoint: Savepoint) -> None:
    flow = Flow("g", groups=64)
    flow.source("in").sink()
    expected_text = refusal(savepoint, flow)
    assert "has 4 key groups, and flow 'g' has 64" in expected_text
    assert "Flow('g', groups=4)" in expected_text


def test_renamed_unnamed_operator_must_be_confirmed_by_a_renaming(tmp_path: Path) -> None:
    def behind(name: str, source: str = "in") -> Flow:
        flow = Flow("f", groups=4)
        stream = flow.source(source).map(str, name=name)
        stream.key_by(0).process(lambda *_: (), VALUE).sink()
        return flow

    old = behind("this")
    for vertex in old.vertices:
        table = StateTable(vertex.states, [])
        if vertex.is_keyed:
            table.states(7)[0].assign(None, "kept")
        write_table(tmp_path, vertex, table, GroupCache(4))
    write_manifest(tmp_path, old, 5)
    start = open_savepoint(tmp_path)
    [name] = [vertex.name for vertex in old.vertices if vertex.is_keyed]
    expected_text = refusal(start, behind("another"))
    assert f"'{name}' has no name of its own" in expected_text
    assert f"--rename-state {name}={name}" in expected_text
    confirmed = MappingOptions(rename=((name, name),))
    assert contents(start, behind("another"), confirmed) == {(name, "v"): "kept"}
    confirmed = MappingOptions(rename=(("in", "source"),))
    assert contents(start, behind("this", "source"), confirmed) == {(name, "v"): "kept"}
