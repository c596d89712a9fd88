"""`run` in the process of the caller: each kind of output, equality with the reference, errors."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from itertools import count
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import (
    Count,
    Flow,
    FlowError,
    FunctionFailed,
    Item,
    RunSummary,
    Tumbling,
    run,
    run_reference,
)
from driftline.connectors.sinks.lmdb import read_items
from driftline.engine.errors import NotDeterministic, StateMismatch
from driftline.engine.operators.steps import FAILURES
from driftline.engine.reference import interpret
from tests.api.flows import (
    ORDERS,
    as_lines,
    division_flow,
    lines_in,
    order_payment_flow,
    running_totals,
)

RECORDS = st.lists(
    st.fixed_dictionaries({"id": st.sampled_from("abc"), "n": st.integers(0, 40)}), max_size=40
)


@given(
    RECORDS, RECORDS, st.integers(1, 3), st.sampled_from(["speculative", "buffered"]), st.booleans()
)
def test_run_equals_the_reference(
    orders: list[object], payments: list[object], nodes: int, ordering: str, lazy: bool
) -> None:
    inputs: list[Iterable[object]] = [iter(orders) if lazy else orders, payments]
    found = list(run(order_payment_flow(), inputs, nodes=nodes, ordering=ordering))
    assert found == list(run_reference(order_payment_flow(), [orders, payments]))


def test_every_kind_of_output_equals_the_reference(tmp_path: Path) -> None:
    expected = list(run_reference(running_totals(), [ORDERS]))
    items = [Item((0, 0), 0, "mine")]
    for output in (items, tmp_path / "path", str(tmp_path / "text"), f"lmdb:{tmp_path}/lmdb"):
        # The flow is made in a function, so no other process can import it.
        summary = run(running_totals(), {"orders": ORDERS}, output, nodes=2)
        assert summary == RunSummary(40, 40, 0, 0, 0, summary.seconds, processes=False)
    assert items[0].value == "mine"
    assert items[1:] == list(read_items(tmp_path / "lmdb")) == expected
    for name in ("path", "text"):
        assert lines_in(tmp_path / name) == as_lines(running_totals(), expected)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Handle SIGINT, which shells let background processes ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("lmdb", [False, True])
def test_repeated_call_resumes_after_an_interruption(lmdb: bool, tmp_path: Path) -> None:
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


def test_directory_of_another_run_is_rejected_with_the_differences(tmp_path: Path) -> None:
    output = tmp_path
    run(running_totals(), [ORDERS], output)
    with pytest.raises(StateMismatch, match=r"another run:\n  the input of source 'orders' is "):
        run(running_totals(), [ORDERS[:-1]], output)
    with pytest.raises(StateMismatch, match="the input of source 'orders' is an iterator"):
        run(running_totals(), [iter(ORDERS)], output)  # its results could have been different
    with pytest.raises(StateMismatch, match=r"run:\n  the number of nodes is 2 instead of 1\n"):
        run(running_totals(), [ORDERS], output, nodes=2)
    with pytest.raises(StateMismatch, match="the policy is none instead of exactly-once"):
        run(running_totals(), [ORDERS], output, policy="none")
    other = Flow("another")
    other.source("orders").sink()
    with pytest.raises(StateMismatch, match="the flow is named 'another' instead of"):
        run(other, [ORDERS], output)


def test_run_resumes_with_an_extended_or_repaired_file(tmp_path: Path) -> None:
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


# Failures ---------------------------------------------------------------------------------------


def test_function_error_follows_some_earlier_outputs() -> None:
    items: list[Item] = []
    with pytest.raises(FunctionFailed) as error:
        run(division_flow(), [iter([1, 2, 0, 4])], items)
    assert [12, 6][: len(items)] == [item.value for item in items]
    text = str(error.value)
    assert "operator 'divide' failed at label [3, 0], key None: ZeroDivisionError" in text
    assert "record: 0" in text
    assert "return 12 // number" in text
    assert "dead_letters=True" in text


def test_dead_letters_are_items_of_sink_minus_one() -> None:
    found = list(run(division_flow(), [[1, 0, 3]], dead_letters=True))
    assert found == list(run_reference(division_flow(), [[1, 0, 3]], dead_letters=True))
    assert [item.sink for item in found] == [0, FAILURES, 0]
    items: list[Item] = []
    summary = run(division_flow(), [iter([1, 0, 3, 0])], items, dead_letters=True)
    assert (summary.records, summary.outputs, summary.dead_letters) == (4, 2, 2)


@pytest.mark.parametrize(
    ("values", "failures"), [([5.0, nan, 7.0, 9.0], 1), ([b"5", (1, 2), b"7", 3], 2)]
)
def test_top_of_values_without_an_order_is_that_of_the_reference(
    values: list[object], failures: int
) -> None:
    flow = Flow("best")
    flow.source("values").key_by(lambda value: 1).top(2, by=lambda value: value).sink()
    found = list(run(flow, [values], dead_letters=True))
    assert repr(found) == repr(list(run_reference(flow, [values], dead_letters=True)))
    assert [item.sink for item in found].count(FAILURES) == failures


# Calls ------------------------------------------------------------------------------------------


def test_a_flow_may_be_named() -> None:
    found = list(run("tests.api.flows:IMPORTABLE", [ORDERS]))
    assert found == list(run_reference(running_totals(), [ORDERS]))
    with pytest.raises(FlowError, match="no flow 'nowhere_at_all'"):
        run("nowhere_at_all", [ORDERS])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "exactly-twice"}, "unknown policy 'exactly-twice'; choose one of"),
        ({"nodes": 0}, "nodes=0"),
        ({"nodes": 2.0}, "nodes=2.0"),
        ({"nodes": 200}, "cannot run on 200 nodes: it has 128 key groups"),
        ({"state": "state"}, "state= is for nodes that are processes"),
        ({"output": {}}, "outputs cannot go to a dict: give a list"),
    ],
)
def test_invalid_arguments_are_rejected_at_the_call(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(FlowError) as error:
        run(running_totals(), [ORDERS], **arguments)  # type: ignore[call-overload]
    assert message in str(error.value)


def test_inputs_are_closed_when_the_caller_stops_reading() -> None:
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


def test_summary_counts_late_elements_without_a_sink() -> None:
    flow = Flow("late")
    windows = (
        flow.source("times", event_time=lambda at: at).key_by(lambda _: "k").window(Tumbling(10))
    )
    windows.aggregate(count=Count()).sink()
    summary = run(flow, [[5, 30, 6, 7, 31, 8]], [], nodes=2)
    late: Counter[str] = Counter()
    list(interpret(flow, [enumerate([5, 30, 6, 7, 31, 8], 1)], late=late))
    assert summary.late_elements == late.total() == 3


def test_iterator_may_reuse_one_record() -> None:
    def rows() -> Iterator[dict[str, int]]:
        row = {"n": 0}
        for n in range(6):
            row["n"] = n
            yield row

    flow = Flow("numbers")
    flow.source("rows").map(lambda row: row["n"]).sink()
    assert [item.value for item in run(flow, [rows()])] == list(range(6))
