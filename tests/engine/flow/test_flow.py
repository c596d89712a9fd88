"""A flow that cannot run is refused, as early as it can be known, with the operator's name."""

from collections.abc import Callable
from functools import partial

import pytest

from driftline.engine.errors import DriftlineError, FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.reference import run_reference
from driftline.engine.state.managed import ListState, ValueState


def scan_without_function(flow: Flow) -> None:
    flow.source("in").key_by(0).scan(None, name="counter")  # type: ignore[arg-type]


def union_of_two_flows(flow: Flow) -> None:
    flow.source("in").union(Flow("other").source("in"), name="joined")


def same_state_twice(flow: Flow) -> None:
    keyed = flow.source("in").key_by(0)
    keyed.scan(lambda *_: 1, ValueState("s"), ListState("s"), name="counter")


def no_state(flow: Flow) -> None:
    flow.source("in").key_by(0).scan(lambda *_: 1, 5, name="counter")


def source_that_leads_nowhere(flow: Flow) -> None:
    flow.source("a").sink()
    flow.source("lonely")
    flow.validate()


def map_that_leads_nowhere(flow: Flow) -> None:
    flow.source("a").sink("x")
    flow.source("b").map(str, name="shout")
    flow.validate()


def two_sinks_of_one_name(flow: Flow) -> None:
    flow.source("a").sink()
    flow.source("b").sink()


def union_with_a_keyed_stream(flow: Flow) -> None:
    one, other = flow.source("one"), flow.source("other")
    one.union(other.key_by(0), name="joined")  # type: ignore[arg-type]


def union_of_a_flow_with_a_keyed_stream(flow: Flow) -> None:
    flow.union(flow.source("in").key_by(0), flow.source("b"))  # type: ignore[arg-type]


def _after_key_by(name: str, flow: Flow) -> object:
    return getattr(flow.source("in").key_by(0), name)(len)


WRONG: list[tuple[Callable[[Flow], object], str]] = [
    (lambda flow: flow.validate(), "'wrong' is empty"),
    (lambda flow: (flow.source("in"), flow.source("in")), "a source named 'in', as this source is"),
    (lambda flow: flow.source("in").map(str, name="in"), "a source named 'in', as this map is"),
    (two_sinks_of_one_name, "named 'output'"),
    (lambda flow: flow.source("in").map(5, name="shout"), "map 'shout' needs a function, not 5"),  # type: ignore[arg-type]
    (lambda flow: flow.source("in").filter(None, name="some"), "filter 'some' needs a function"),  # type: ignore[arg-type]
    (lambda flow: flow.source("in").flat_map("x"), "flat_map 'flat_map-1' needs a function"),  # type: ignore[arg-type]
    (scan_without_function, "scan 'counter' needs a function"),
    (lambda flow: flow.source("in").scan(len), "scan after 'in' needs a key"),  # type: ignore[attr-defined]
    (lambda flow: flow.source("in").process(len), "after 'in' needs a key"),  # type: ignore[attr-defined]
    (lambda flow: flow.source("in").distinct(), "distinct after 'in' needs a key"),  # type: ignore[attr-defined]
    (no_state, "scan 'counter': 5 is not a state declaration"),
    (same_state_twice, "scan 'counter' declares state 's' twice"),
    (union_of_two_flows, "union 'joined' joins streams of different flows"),
    (union_with_a_keyed_stream, "union 'joined' joins streams before .key_by, not a KeyedStream"),
    (union_of_a_flow_with_a_keyed_stream, "of 'in' comes .scan"),
    (lambda flow: flow.source("in", fields=["a", "b"]).key_by("c"), "after 'in': unknown key"),
    (lambda flow: flow.source("in").key_by(None), r"key_by\(None\) after 'in'"),  # type: ignore[call-overload]
    (lambda flow: flow.source("in").key_by(True), r"key_by\(True\) after 'in'"),
    (lambda flow: flow.source("in").key_by(1.5), r"key_by\(1.5\) after 'in'"),  # type: ignore[call-overload]
]


WRONG += [
    (partial(_after_key_by, name), r"after \.key_by\(\.\.\.\) of 'in' comes \.scan\(\.\.\.\), ")
    for name in ("map", "flat_map", "filter", "key_by", "sink", "union")
]


@pytest.mark.parametrize(("build", "what"), WRONG, ids=range(len(WRONG)))
def test_a_flow_that_cannot_run_is_refused_and_the_operator_is_named(
    build: Callable[[Flow], object], what: str
) -> None:
    with pytest.raises(FlowError, match=what):
        build(Flow("wrong"))
    assert issubclass(FlowError, DriftlineError)


@pytest.mark.parametrize("fields", ["ab", [1, 2], ["a", "a"]], ids=range(3))
def test_fields_are_different_names(fields: list[str]) -> None:
    with pytest.raises(FlowError, match="fields"):
        Flow("wrong").source("in", fields=fields)


@pytest.mark.parametrize("fields", ["ab", [1], ["a", "a"]], ids=range(3))
def test_wrong_fields_name_their_operator(fields: list[str]) -> None:
    with pytest.raises(FlowError, match="shout"):
        Flow("wrong").source("in").map(str, name="shout", fields=fields)


# What a flow says of itself -------------------------------------------------------------------


def values(flow: Flow, payloads: list[object]) -> list[object]:
    return [item.value for item in run_reference(flow, [payloads])]


def test_a_key_is_a_function_a_field_or_a_position() -> None:
    rows: list[object] = [("a", 1), ("b", 2), ("a", 3)]
    for key in (lambda row: row[0], "word", 0, -2):
        flow = Flow("keys")

        def count(row: object, seen: ValueState[int]) -> int:
            seen.set(seen.get(0) + 1)
            return seen.get(0)

        flow.source("in", fields=("word", "n")).key_by(key).scan(count, ValueState("n")).sink()
        assert values(flow, rows) == [1, 1, 2]


def test_a_name_is_a_key_of_a_dict_where_there_are_no_fields() -> None:
    flow = Flow("keys")
    flow.source("in").key_by("user").process(lambda context, _: [context.key]).sink()
    assert values(flow, [{"user": "a"}, {"user": 7}]) == ["a", 7]


def test_fields_stay_with_the_payload_and_go_where_it_changes() -> None:
    flow = Flow("fields")
    pairs = flow.source("in", fields=["word", "n"])
    assert pairs.vertex.fields == ("word", "n")
    assert pairs.filter(len, name="f").vertex.fields == ("word", "n")
    assert pairs.map(len, name="m").vertex.fields is None
    assert pairs.map(len, name="m2", fields=["l"]).vertex.fields == ("l",)
    assert pairs.flat_map(list, name="fm").vertex.fields is None
    keyed = pairs.key_by("word")
    assert keyed.scan(lambda *_: 1, name="s", fields=("a", "b")).vertex.fields == ("a", "b")
    assert keyed.process(lambda *_: [], name="p").vertex.fields is None
    pairs.sink("all")
    assert flow.sinks[0].fields == ("word", "n")


def test_a_union_has_fields_only_where_all_streams_agree() -> None:
    flow = Flow("fields")
    one = flow.source("a", fields=["x", "y"])
    same = flow.source("b", fields=["x", "y"])
    other = flow.source("c", fields=["y", "x"])
    none = flow.source("d")
    assert one.union(same).vertex.fields == ("x", "y")
    assert one.union(same, other).vertex.fields is None
    assert one.union(none).vertex.fields is None
    assert flow.union(one, same).vertex.fields == ("x", "y")


def test_the_graph_is_what_was_written() -> None:
    flow = Flow("graph")
    a, b = flow.source("a"), flow.source("b")
    mapped = a.map(str, name="m")
    joined = mapped.union(b, a, name="u")
    joined.key_by(0).scan(lambda *_: 1, name="s").sink("one")
    joined.sink("two")
    assert [(v.number, v.kind, v.name, v.inputs) for v in flow.vertices] == [
        (0, "source", "a", ()),
        (1, "source", "b", ()),
        (2, "map", "m", (0,)),
        (3, "union", "u", (2, 1, 0)),
        (4, "scan", "s", (3,)),
        (5, "sink", "one", (4,)),
        (6, "sink", "two", (3,)),
    ]
    assert [v.name for v in flow.sources] == ["a", "b"]
    assert [v.name for v in flow.sinks] == ["one", "two"]
    assert [v.name for v in flow.outputs_of(0)] == ["m", "u"]
    assert [v.name for v in flow.outputs_of(3)] == ["s", "two"]
    assert [v.keyed for v in flow.vertices] == [False] * 4 + [True, False, False]
    assert flow.validate() is flow


def test_a_stream_in_a_union_with_itself_comes_twice() -> None:
    flow = Flow("twice")
    a = flow.source("a")
    a.union(a).sink()
    found = list(run_reference(flow, [["x"]]))
    assert [(item.label, item.value) for item in found] == [((1, 0, 0), "x"), ((1, 0, 1), "x")]


def test_operators_without_a_name_get_one_of_their_own() -> None:
    flow = Flow("names")
    a = flow.source("a")
    a.map(str).map(str).union(a).sink()
    names = [vertex.name for vertex in flow.vertices]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["", 3, b"out"])
def test_a_name_is_a_text(name: object) -> None:
    with pytest.raises(FlowError, match="the name of a sink is a text that is not empty"):
        Flow("named").source("numbers").sink(name)  # type: ignore[arg-type]


def test_inputs_are_put_in_the_order_of_their_sources() -> None:
    flow = Flow("two")
    flow.source("left").union(flow.source("right")).sink()
    inputs = {"right": ["b"], "left": ["a"]}
    assert [item.value for item in run_reference(flow, inputs)] == ["a", "b"]
    with pytest.raises(FlowError, match=r"no input for left: .* left, right"):
        run_reference(flow, {"right": []})
