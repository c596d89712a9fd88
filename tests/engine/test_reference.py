"""Reference interpreter, the oracle of all other tests: hand-checked results of small flows."""

import pytest

from driftline.engine.errors import FlowError, FunctionFailed
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.steps import FAILURES
from driftline.engine.reference import interpret, run_reference
from driftline.engine.state.managed import ListState, MapState, ReducingState, ValueState
from driftline.engine.wire.bundles import Item


def join(value: str, joined: ValueState[str]) -> str:
    joined.set(joined.get("") + value)
    return joined.get("")


def test_inputs_must_be_one_list_for_each_source() -> None:
    flow = Flow("two")
    flow.source("a").union(flow.source("b")).sink()
    for inputs in ([[1]], [[1], [2], [3]]):
        with pytest.raises(FlowError, match="has 2 sources"):
            run_reference(flow, inputs)
    with pytest.raises(FlowError, match="a list of records for each source, not a dict"):
        run_reference(flow, [{"user": 1}, {"user": 2}])


def test_keyed_state_sees_elements_in_label_order() -> None:
    flow = Flow("join")
    flow.source("in").key_by(lambda text: text.lower()).scan(join, ValueState("joined")).sink()
    assert [item.value for item in run_reference(flow, [["a", "b", "A", "a"]])] == [
        "a",
        "b",
        "aA",
        "aAa",
    ]


def test_several_sources_are_merged_by_time_and_then_by_front() -> None:
    flow = Flow("merge")
    flow.source("x").union(flow.source("y")).key_by(lambda _: 0).scan(join, ValueState("s")).sink()
    left: list[tuple[int, object]] = [(1, "a"), (4, "d")]
    right: list[tuple[int, object]] = [(1, "b"), (2, "c"), (9, "e")]
    found = list(interpret(flow, [left, right]))
    assert [item.label for item in found] == [(1, 0), (1, 1), (2, 1), (4, 0), (9, 1)]
    assert found[-1].value == "abcde"


def test_outputs_are_in_label_order_over_all_sinks_and_branches() -> None:
    flow = Flow("ways")
    source = flow.source("in")
    short = source.map(str.upper, name="short")
    long = source.flat_map(list, name="long").key_by(lambda _: 0).scan(join, ValueState("s"))
    long.sink("long-sink")
    short.sink("short-sink")
    found = list(run_reference(flow, [["ab", "c"]]))
    assert found == [
        Item((1, 0, 0), 1, "AB"),
        Item((1, 0, 1, 0), 0, "a"),
        Item((1, 0, 1, 1), 0, "ab"),
        Item((2, 0, 0), 1, "C"),
        Item((2, 0, 1, 0), 0, "abc"),
    ]
    labels: list[Label] = [item.label for item in found]
    assert labels == sorted(labels)


def test_every_kind_of_state_can_be_used() -> None:
    flow = Flow("states")

    def gather(
        context: Context,
        word: str,
        last: ValueState[str],
        seen: ListState[str],
        counts: MapState[str, int],
        total: ReducingState[int],
    ) -> list[object]:
        seen.append(word)
        counts[word] = counts.get(word, 0) + 1
        before = last.get("none")
        last.set(word)
        return [(context.label, context.key, before, tuple(seen), counts.items(), total.add(1))]

    flow.source("in").key_by(len).process(
        gather,
        ValueState[str]("last"),
        ListState[str]("seen"),
        MapState[str, int]("counts"),
        ReducingState[int]("total", int.__add__),
    ).sink()
    found = [item.value for item in run_reference(flow, [["b", "a", "xx", "b"]])]
    assert found[-1] == ((4, 0), 1, "a", ("b", "a", "b"), (("a", 1), ("b", 2)), 3)
    assert found[2] == ((3, 0), 2, "none", ("xx",), (("xx", 1),), 1)


def test_functions_receive_values_as_decoded_after_a_shuffle() -> None:
    flow = Flow("types")
    seen: list[object] = []

    def look(value: object) -> object:
        seen.append(value)
        return [1, [2]]

    flow.source("in").map(look, name="a").key_by(lambda _: 0).scan(look, name="b").sink()
    list(run_reference(flow, [[{"a": [1, {"b": [2]}]}]]))
    assert seen == [{"a": (1, {"b": (2,)})}, (1, (2,))]


# Failures -------------------------------------------------------------------------------------


def failing() -> Flow:
    flow = Flow("failing")

    def picky(value: str, joined: ValueState[str]) -> str:
        if join(value, joined) == "ab":
            raise ValueError("not ab")
        return joined.get("")

    flow.source("in").key_by(lambda _: 0).scan(picky, ValueState("s"), name="picky").sink()
    return flow


def test_a_failure_ends_the_run_and_names_operator_label_key_record_and_line() -> None:
    found = run_reference(failing(), [["a", "b"]])
    assert next(found).value == "a"
    with pytest.raises(FunctionFailed) as caught:
        next(found)
    text = str(caught.value)
    for part in ("'picky'", "[2, 0]", "key 0", "ValueError: not ab", "'b'", "test_reference.py"):
        assert part in text
    assert "dead-letter" in text


def test_dead_letter_is_an_output_and_its_element_changes_no_state() -> None:
    found = list(run_reference(failing(), [["a", "b", "c"]], dead_letters=True))
    assert [(item.label, item.sink) for item in found] == [
        ((1, 0), 0),
        ((2, 0), FAILURES),
        ((3, 0), 0),
    ]
    assert found[2].value == "ac"
    letter = found[1].value
    assert isinstance(letter, tuple)
    assert letter[:4] == ("picky", "0", "b", "ValueError: not ab")
