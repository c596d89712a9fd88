"""`run` in the process of the caller: each kind of output, equality with the reference, errors."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator, Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import (
    Flow,
    FlowError,
    FunctionFailed,
    Item,
    RunSummary,
    run,
    run_reference,
)
from driftline.connectors.sinks.lmdb import read_items
from driftline.engine.errors import NotDeterministic, StateMismatch, Unavailable
from driftline.engine.operators.steps import FAILURES
from tests.api.flows import ORDERS, as_lines, failing, lines_in, matching, running_totals

RECORDS = st.lists(
    st.fixed_dictionaries({"id": st.sampled_from("abc"), "n": st.integers(0, 40)}), max_size=40
)


@given(
    RECORDS, RECORDS, st.integers(1, 3), st.sampled_from(["speculative", "buffered"]), st.booleans()
)
def test_a_run_gives_what_the_reference_gives(
    orders: list[object], payments: list[object], nodes: int, ordering: str, lazy: bool
) -> None:
    given: list[Iterable[object]] = [iter(orders) if lazy else orders, payments]
    found = list(run(matching(), given, nodes=nodes, ordering=ordering))
    assert found == list(run_reference(matching(), [orders, payments]))


@pytest.mark.parametrize("policy", ["two-phase", "strong-productions", "at-least-once", "none"])
def test_without_an_order_there_are_the_same_labels(policy: str) -> None:
    expected = list(run_reference(running_totals(), [ORDERS]))
    found = list(run(running_totals(), [iter(ORDERS)], policy=policy, nodes=2))
    assert sorted(item.label for item in found) == [item.label for item in expected]
    assert sorted(map(str, (item.value[0] for item in found if isinstance(item.value, tuple)))) == (
        sorted(str(order["who"]) for order in ORDERS if isinstance(order, dict))
    )


def test_a_short_interval_between_snapshots_changes_nothing() -> None:
    found = list(run(running_totals(), [ORDERS * 50], checkpoint_ms=1, nodes=2))
    assert found == list(run_reference(running_totals(), [ORDERS * 50]))


def test_a_list_is_appended_to_in_label_order() -> None:
    items = [Item((0, 0), 0, "mine")]
    summary = run(running_totals(), {"orders": ORDERS}, items, nodes=2)
    assert items[0].value == "mine"
    assert items[1:] == list(run_reference(running_totals(), [ORDERS]))
    assert summary == RunSummary(40, 40, 0, 0, summary.seconds, processes=False)


@pytest.mark.parametrize("as_text", [True, False])
def test_a_directory_holds_the_lines_that_the_command_writes(as_text: bool, tmp_path: Path) -> None:
    output = tmp_path / "out"
    summary = run(
        running_totals(), [ORDERS], str(output) if as_text else output, nodes=2
    )  # made in a function: no other process can import it
    expected = as_lines(running_totals(), list(run_reference(running_totals(), [ORDERS])))
    assert lines_in(output) == expected
    assert summary == RunSummary(40, 40, 0, 0, summary.seconds, processes=False)


def test_lmdb_holds_the_items(tmp_path: Path) -> None:
    summary = run(running_totals(), [ORDERS], f"lmdb:{tmp_path}/out", nodes=2)
    assert list(read_items(tmp_path / "out")) == list(run_reference(running_totals(), [ORDERS]))
    assert summary == RunSummary(40, 40, 0, 0, summary.seconds, processes=False)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A shell has what it runs in the background ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("lmdb", [False, True])
def test_the_same_call_goes_on_after_an_interruption(lmdb: bool, tmp_path: Path) -> None:
    calls = 0

    def interrupted(order: dict[str, object]) -> dict[str, object]:
        nonlocal calls
        calls += 1
        if calls == 1000:
            signal.raise_signal(signal.SIGINT)
        return order

    def flow() -> Flow:
        made = Flow("interrupted")
        made.source("orders").map(interrupted, name="interrupted").sink("out")
        return made

    records = ORDERS * 40
    output = f"lmdb:{tmp_path}" if lmdb else tmp_path

    def held() -> list[str]:
        return as_lines(flow(), list(read_items(tmp_path))) if lmdb else lines_in(tmp_path)

    with pytest.raises(KeyboardInterrupt):
        run(flow(), [records], output)
    before = held()
    assert 0 < len(before) < 1000
    assert run(flow(), [records], output).outputs == 1600
    after = held()
    assert after == as_lines(flow(), list(run_reference(flow(), [records])))
    assert after[: len(before)] == before
    assert run(flow(), [records], output).outputs == 1600
    assert held() == after


@pytest.mark.parametrize("lmdb", [False, True])
def test_a_directory_of_another_run_is_refused_with_the_differences(
    lmdb: bool, tmp_path: Path
) -> None:
    output = f"lmdb:{tmp_path}" if lmdb else tmp_path
    run(running_totals(), [ORDERS], output)
    with pytest.raises(StateMismatch, match=r"another run:\n  the input of source 'orders' is "):
        run(running_totals(), [ORDERS[:-1]], output)
    with pytest.raises(StateMismatch, match="the input of source 'orders' is an iterator"):
        run(running_totals(), [iter(ORDERS)], output)  # who knows what it would have given?
    with pytest.raises(StateMismatch, match=r"run:\n  the number of nodes is 2 instead of 1\n"):
        run(running_totals(), [ORDERS], output, nodes=2)
    with pytest.raises(StateMismatch, match="the policy is none instead of exactly-once"):
        run(running_totals(), [ORDERS], output, policy="none")
    other = Flow("another")
    other.source("orders").sink()
    with pytest.raises(StateMismatch, match="the flow is named 'another' instead of"):
        run(other, [ORDERS], output)


def test_a_file_that_has_grown_or_is_mended_at_its_end_goes_on(tmp_path: Path) -> None:
    file, output = tmp_path / "orders.jsonl", tmp_path / "out"
    first = '{"who": "a", "price": 1}\nno json\n{"who": "a", "price": 3}\n'
    for more, bad in (('{"who": "a"', [2, 4]), ('{"who": "a", "price": 2}\n', [2])):
        file.write_text(first + more)
        run(running_totals(), [file], output, dead_letters=True)
        aside = (output / "dead-letters" / "input-0.jsonl").read_text().splitlines()
        assert [json.loads(line)["record"] for line in aside] == bad
    assert [json.loads(line)["value"] for line in lines_in(output)] == [
        ["a", 1], ["a", 4], ["a", 6],
    ]  # fmt: skip
    file.write_text(first.replace("1", "2"))
    with pytest.raises(NotDeterministic, match="Or the input has changed"):
        run(running_totals(), [file], output, dead_letters=True)


def test_a_place_that_cannot_be_written_is_told_and_not_tried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(Unavailable, match=r"Not a directory|File exists"):
        run(running_totals(), [ORDERS], tmp_path / "file" / "out")


# Failures ---------------------------------------------------------------------------------------


def test_a_function_that_raises_is_named_after_some_of_the_outputs_before_it() -> None:
    items: list[Item] = []
    with pytest.raises(FunctionFailed) as error:
        run(failing(), [iter([1, 2, 0, 4])], items)
    assert [12, 6][: len(items)] == [item.value for item in items]
    text = str(error.value)
    assert "operator 'divide' failed at label [3, 0], key None: ZeroDivisionError" in text
    assert "record: 0" in text
    assert "return 12 // number" in text
    assert "dead_letters=True" in text


def test_dead_letters_are_items_of_sink_minus_one() -> None:
    found = list(run(failing(), [[1, 0, 3]], dead_letters=True))
    assert found == list(run_reference(failing(), [[1, 0, 3]], dead_letters=True))
    assert [item.sink for item in found] == [0, FAILURES, 0]
    items: list[Item] = []
    summary = run(failing(), [iter([1, 0, 3, 0])], items, dead_letters=True)
    assert (summary.records, summary.outputs, summary.dead_letters) == (4, 2, 2)


def test_what_cannot_be_worked_off_is_set_aside_in_the_directory(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"who": "a", "price": 1}\nno json\n{"price": 2}\n{"who": "a", "price": 3}\n')
    output = tmp_path / "out"
    summary = run(running_totals(), [file], output, dead_letters=True)
    assert (summary.outputs, summary.dead_letters, summary.bad_records) == (2, 1, 1)
    assert [json.loads(line)["value"] for line in lines_in(output)] == [["a", 1], ["a", 4]]
    [bad] = (output / "dead-letters" / "input-0.jsonl").read_text().splitlines()
    assert json.loads(bad)["record"] == 2
    [failed] = (output / "dead-letters" / "0.jsonl").read_text().splitlines()
    assert json.loads(failed)["value"]["operator"] == "key of total"


# Calls ------------------------------------------------------------------------------------------


def test_a_flow_may_be_named() -> None:
    found = list(run("tests.api.flows:IMPORTABLE", [ORDERS]))
    assert found == list(run_reference(running_totals(), [ORDERS]))
    with pytest.raises(FlowError, match="no flow 'nowhere_at_all'"):
        run("nowhere_at_all", [ORDERS])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"policy": "exactly-twice"}, "unknown policy 'exactly-twice'; there are"),
        ({"ordering": "random"}, "unknown ordering 'random'; there are"),
        ({"nodes": 0}, "nodes=0"),
        ({"checkpoint_ms": 0}, "checkpoint_ms=0"),
        ({"state": "state"}, "state= is for nodes that are processes"),
        ({"output": {}}, "outputs cannot go to a dict: give a list"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_the_call(
    arguments: dict[str, object], told: str
) -> None:
    with pytest.raises(FlowError) as error:
        run(running_totals(), [ORDERS], **arguments)  # type: ignore[call-overload]
    assert told in str(error.value)


def test_a_flow_that_cannot_run_is_refused_at_the_call() -> None:
    with pytest.raises(FlowError, match="is empty"):
        run(Flow("nothing"), [ORDERS])


def test_an_iterator_may_use_one_record_again_and_again() -> None:
    def rows() -> Iterator[dict[str, int]]:
        row = {"n": 0}
        for n in range(6):
            row["n"] = n
            yield row

    flow = Flow("numbers")
    flow.source("rows").map(lambda row: row["n"]).sink()
    assert [item.value for item in run(flow, [rows()])] == list(range(6))


def test_what_is_read_is_closed_when_the_caller_stops_reading() -> None:
    closed = []

    def endless() -> Iterator[int]:
        try:
            yield from count()
        finally:
            closed.append(True)

    flow = Flow("numbers")
    flow.source("numbers").map(lambda n: n).sink()
    outputs = run(flow, [endless()])
    assert isinstance(outputs, Generator)
    assert next(outputs).value == 0
    outputs.close()
    assert closed


def test_files_of_a_folder_and_of_a_pattern_are_inputs(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name}"}}\n')
    flow = Flow("texts")
    flow.source("texts").map(lambda record: record["text"]).sink()
    for files in (tmp_path, str(tmp_path / "*.jsonl")):
        assert [item.value for item in run(flow, [files])] == ["a", "b"]
