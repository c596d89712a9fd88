"""`FlowTest`: records one by one, outputs and states after each, and kills at any moment."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import (
    Count,
    Flow,
    FlowError,
    FlowTest,
    FunctionFailed,
    Item,
    ReducingState,
    TimedContext,
    Timer,
    Tumbling,
)
from driftline.engine.errors import PayloadError
from driftline.engine.reference import interpret
from tests.api.flows import division_flow, order_payment_flow, running_totals

PROCESSES = ("node-0", "node-1", "front-0", "front-1", "master", "consumer")


# What is sent ------------------------------------------------------------------------------------


def test_outputs_and_states_are_available_after_each_record() -> None:
    test = FlowTest(running_totals())
    assert test.outputs("totals") == []
    test.send("orders", {"who": "Ann", "price": 5})
    assert test.outputs("totals") == [("Ann", 5)]
    assert test.state("total", key="Ann") == {"spent": 5}
    assert test.state("total", key="Bob") == {"spent": None}
    test.send({"who": "Bob", "price": 7})  # there is one source
    test.send({"who": "Ann", "price": 1})
    assert test.outputs() == [("Ann", 5), ("Bob", 7), ("Ann", 6)]
    assert test.state("total", "Ann") == {"spent": 6}
    assert test.state("total", "Bob") == {"spent": 7}


def test_label_order_is_call_order_over_all_sources() -> None:
    flow = Flow("both")
    flow.source("left").union(flow.source("right")).key_by(lambda _: 0).scan(
        lambda text, seen: seen.add(text), ReducingState[str]("seen", operator.add)
    ).sink("seen")
    test = FlowTest(flow, nodes=3)
    for source, text in zip(("right", "left", "left", "right", "left"), "abcde", strict=True):
        test.send(source, text)
    assert test.items() == [
        Item((1, 1), 0, "a"),
        Item((2, 0), 0, "ab"),
        Item((3, 0), 0, "abc"),
        Item((4, 1), 0, "abcd"),
        Item((5, 0), 0, "abcde"),
    ]


# Kills ------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["orders", "payments"]),
            st.fixed_dictionaries({"id": st.sampled_from("abc"), "n": st.integers(0, 40)}),
            st.booleans(),
        ),
        st.sampled_from(PROCESSES),
    ),
    max_size=25,
)


@given(STEPS, st.integers(0, 1000))
def test_outputs_match_the_reference_after_any_kills(
    steps: list[tuple[str, dict[str, object], bool] | str], seed: int
) -> None:
    sent: dict[str, list[tuple[int, object]]] = {"orders": [], "payments": []}
    with FlowTest(order_payment_flow(), seed=seed) as test:
        for step in steps:
            if isinstance(step, str):
                test.kill(step)
                continue
            source, record, settle = step
            time = 1 + sum(map(len, sent.values()))
            sent[source].append((time, record))
            test.send(source, record, settle=settle)
        expected = list(interpret(order_payment_flow(), list(sent.values())))
        assert sorted(test.items("matched") + test.items("counts"), key=lambda i: i.label) == (
            expected
        )
    assert [i.value for i in expected if i.sink == 0] == test.outputs("matched")


@pytest.mark.parametrize("policy", ["exactly-once", "two-phase", "strong-productions"])
def test_kill_with_records_in_flight_loses_and_repeats_no_output(policy: str) -> None:
    flow = order_payment_flow()
    for seed, process in enumerate(PROCESSES):
        test = FlowTest(flow, policy=policy, seed=seed)
        for n in range(1, 9):
            test.send("orders", {"id": n % 3, "n": 5 * n}, settle=False)
            if n in (3, 4, 7):
                test.kill(process)
        seen = test.items("matched")
        assert [item.label[0] for item in seen] == list(range(1, 9))
        states = [test.state("pair", key) for key in range(3)]
        assert sorted(n for state in states for n in _numbers(state)) == list(range(5, 45, 5))
        test.end()
        assert test.items("matched") == seen


def _numbers(state: dict[str, object]) -> list[int]:
    numbers = state["all"]
    assert isinstance(numbers, list)
    return numbers


def test_unsettled_record_progresses_as_far_as_the_seed_decides() -> None:
    """Kills can therefore hit the record before, at, and after each operator."""
    left = set()
    for seed in range(20):
        test = FlowTest(running_totals(), seed=seed)
        test.settle()
        test.send({"who": "Ann", "price": 5}, settle=False)
        left.add(len(test._consumer.items))
        assert test.outputs() == [("Ann", 5)]
    assert left == {0, 1}


# The end, and failures --------------------------------------------------------------------------


def test_outputs_and_states_are_available_after_the_end() -> None:
    with FlowTest(running_totals()) as test:
        test.send({"who": "Ann", "price": 5})
    assert test.outputs() == [("Ann", 5)]
    assert test.state("total", "Ann") == {"spent": 5}
    with pytest.raises(FlowError, match="this test has ended, nothing can be sent"):
        test.send({"who": "Ann", "price": 5})
    with pytest.raises(FlowError, match="this test has ended, no process can be killed"):
        test.kill("node-0")


def test_send_raises_the_failure_and_keeps_earlier_outputs() -> None:
    with FlowTest(division_flow()) as test:
        test.send(3)
        for _ in range(2):
            with pytest.raises(FunctionFailed) as error:
                test.send(0)
            assert "operator 'divide' failed at label [2, 0], key None" in str(error.value)
            assert "return 12 // number" in str(error.value)
        assert test.outputs() == [4]
        assert test.failures == []


# Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.send("bills", {}), "there is no source 'bills': flow 'matching' has the "),
        (lambda t: t.send("orders", 1, 2), "send(source, record): flow 'matching'"),
        (lambda t: t.outputs("match"), "there is no sink 'match': flow 'matching' has the sinks "),
        (lambda t: t.outputs(), "say which sink: flow 'matching' has the sinks matched, counts"),
        (lambda t: t.state("matched", 1), "no operator 'matched' with states: flow 'matching' has"),
        (lambda t: t.state("pair", object()), "cannot be a key"),
        (lambda t: t.kill("node-2"), "no process 'node-2' to kill; there are master, consumer, "),
    ],
)
def test_unknown_name_error_lists_the_valid_names(
    call: Callable[[FlowTest], object], message: str
) -> None:
    test = FlowTest(order_payment_flow())
    with pytest.raises(FlowError) as error:
        call(test)
    assert message in str(error.value)
    test.send("orders", {"id": "a", "n": 5})  # the rejected call has no effect
    assert test.items("counts")[0].label[0] == 1


def test_unencodable_record_is_rejected_and_not_sent() -> None:
    test = FlowTest(running_totals())
    with pytest.raises(PayloadError, match="source 'orders', record 1: a value of type object"):
        test.send(object())
    test.send({"who": "Ann", "price": 5})
    assert test.items() == [Item((1, 0), 0, ("Ann", 5))]


def test_function_that_calls_its_own_test_is_an_error() -> None:
    flow = Flow("inside out")
    flow.source("numbers").map(lambda n: test.send(n)).sink()
    test = FlowTest(flow)
    with pytest.raises(FunctionFailed, match="calls the run or the test that it is part of"):
        test.send(1)


# Event time. -------------------------------------------------------------------------------------


def test_advance_to_fires_timers_without_a_record() -> None:
    def read(context: TimedContext, reading: dict[str, int]) -> tuple[()]:
        context.timers.set("silence", after="5s")
        return ()

    def alert(context: TimedContext, timer: Timer) -> tuple[tuple[object, int], ...]:
        return () if context.at_end else ((context.key, context.watermark),)

    flow = Flow("silence")
    readings = flow.source("readings", event_time="at", max_delay="1s", tick="1s")
    readings.key_by("sensor").process(read, on_timer=alert).sink()
    with FlowTest(flow) as test:
        test.send({"sensor": "a", "at": 10})
        test.advance_to(15_999_999)
        assert test.outputs() == []
        test.kill("node-0")
        test.advance_to("1970-01-01T00:00:17Z")
        test.send({"sensor": "a", "at": 3})
        assert test.outputs() == [("a", 16_000_000), ("a", 16_000_000)]
        with pytest.raises(FlowError, match=r"advance_to\('soon'\)"):
            test.advance_to("soon")


def test_idle_source_does_not_hold_back_windows_until_it_resumes() -> None:
    flow = Flow("minutes")
    one, other = (flow.source(name, event_time="at", idle_after="1m") for name in ("one", "other"))
    windows = one.union(other).key_by(lambda record: "all").window(Tumbling(10))
    windows.aggregate(count=Count()).sink("rows")
    windows.late.sink("late")
    with FlowTest(flow) as test:

        def counts() -> list[int]:
            rows: list[Any] = test.take("rows")
            return [row["count"] for row in rows]

        test.send("other", {"at": 1})
        test.send("one", {"at": 12})
        assert counts() == []
        test.let_idle("other")
        assert counts() == [1]
        test.kill("node-1")
        test.send("other", {"at": 5})
        test.send("one", {"at": 25})
        late: list[Any] = test.take("late")
        assert [each["record"] for each in late] == [{"at": 5}]
        assert counts() == [], "the other source is at 12 again"
        test.send("other", {"at": 21})
        assert counts() == [1]


def test_marks_need_a_source_with_event_times() -> None:
    flow = Flow("plain")
    flow.source("all").sink()
    with FlowTest(flow) as test:
        with pytest.raises(FlowError, match="event times"):
            test.advance_to(1)
        with pytest.raises(FlowError, match="event times"):
            test.let_idle("all")
    with pytest.raises(FlowError, match="idle_after is for"):
        Flow("bad").source("all", idle_after=1)
