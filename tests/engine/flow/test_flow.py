"""Flows: an invalid flow is rejected as early as possible, with the operator's name."""

from collections.abc import Callable
from typing import Any

import pytest

from driftline.engine.errors import DriftlineError, FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.flow_graph import PATH_LENGTH_MAX
from driftline.engine.operators.windows import Tumbling
from driftline.engine.reference import run_reference
from driftline.engine.state.managed import ListState, ValueState


async def waiting(value: object) -> object:
    return value


def chain_of_maps(flow: Flow, count: int) -> Flow:
    stream = flow.source("in")
    for _ in range(count - 2):
        stream = stream.map(str)
    stream.sink()
    return flow


WRONG: list[tuple[Callable[[Flow], object], str]] = [
    (lambda flow: flow.validate(), "'wrong' is empty"),
    (lambda flow: (flow.source("in"), flow.source("in")), "already has a source named 'in'"),
    (lambda flow: [flow.source(name).sink() for name in "ab"], "named 'output'"),  # type: ignore[func-returns-value]
    (lambda flow: flow.source("in").map(5, name="shout"), "map 'shout' needs a function, not 5"),  # type: ignore[arg-type]
    (lambda flow: flow.source("in").key_by(0).scan(None, name="n"), "scan 'n' needs a function"),  # type: ignore[arg-type]
    (lambda flow: flow.source("in").key_by(0).scan(max, 5, name="n"), "'n': 5 is not a state decl"),
    (
        lambda flow: flow.source("in").key_by(0).scan(max, ValueState("s"), ListState("s")),
        "declares state 's' twice",
    ),
    (
        lambda flow: flow.source("in").key_by(0).scan(max, ValueState("(timers)")),
        r"the name '\(timers\)' is reserved",
    ),
    (lambda flow: flow.source("in").key_by(0).map(len), r"after .*'in' needs \.scan\(\.\.\.\), "),  # type: ignore[attr-defined]
    (
        lambda flow: flow.source("in").key_by(0).window(Tumbling("1m")).sink(),  # type: ignore[attr-defined]
        r"\.window\(\.\.\.\) after 'in' needs .* or \.collect\(\.\.\.\) next: put \.sink after it",
    ),
    (
        lambda flow: flow.source("in").union(Flow("other").source("in"), name="joined"),
        "union 'joined' cannot merge streams of different flows",
    ),
    (
        lambda flow: flow.source("in").union(flow.source("b").key_by(0)),  # type: ignore[arg-type]
        "merges streams, not a KeyedStream: put it before .key_by",
    ),
    (lambda flow: flow.source("in", fields=["a", "b"]).key_by("c"), "after 'in': unknown field"),
    (lambda flow: flow.source("in").key_by(True), r"key_by\(True\) after 'in'"),
    (lambda flow: flow.source("in", fields=["a", "a"]), "fields"),
    (lambda flow: flow.source("in").map(str, name="shout", fields="ab"), "shout"),
    (lambda flow: flow.source("in").map(waiting, name="n"), "map 'n': its function is async"),
    (lambda flow: flow.source("in").key_by(waiting).distinct(), "its key function is async"),
    (
        lambda flow: chain_of_maps(flow, PATH_LENGTH_MAX + 1).validate(),
        r"sink 'output' .* operator 101 in a row",
    ),
]


@pytest.mark.parametrize(("build", "what"), WRONG, ids=range(len(WRONG)))
def test_invalid_flow_is_rejected_with_the_operator_name(
    build: Callable[[Flow], object], what: str
) -> None:
    with pytest.raises(FlowError, match=what):
        build(Flow("wrong"))
    assert issubclass(FlowError, DriftlineError)


# Properties of a flow -------------------------------------------------------------------------


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


def test_key_by_name_reads_a_dict_key_if_no_fields_are_declared() -> None:
    flow = Flow("keys")
    flow.source("in").key_by("user").process(lambda context, _: [context.key]).sink()
    assert values(flow, [{"user": "a"}, {"user": 7}]) == ["a", 7]


def test_fields_are_kept_only_by_operators_that_keep_the_payload() -> None:
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


def test_inputs_are_ordered_like_their_sources() -> None:
    flow = Flow("two")
    flow.source("left").union(flow.source("right")).sink()
    inputs = {"right": ["b"], "left": ["a"]}
    assert [item.value for item in run_reference(flow, inputs)] == ["a", "b"]
    with pytest.raises(FlowError, match=r"no input for left: .* left, right"):
        run_reference(flow, {"right": []})


IN_A_LOOP = """
from driftline import Flow

def build(numbers):
    flow = Flow("closures")
    stream = flow.source("in")
    for number in numbers:
        stream = stream.map(lambda x: x + number, name=f"add-{number}")
    stream.sink()
    return flow

def clean(stream, least):
    return stream.filter(lambda x: x > least)

flow = Flow("globals")
stream = flow.source("in")
for n in (1, 2, 3):
    stream = stream.map(lambda x: x + n, name=f"add-{n}")
for n in (4, 5):
    stream = clean(stream, n).map(lambda x, n=n: x + n)
stream.sink()
"""


def test_functions_that_share_a_loop_variable_cause_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names: dict[str, Any] = {}
    exec(IN_A_LOOP, names)
    for flow, variable, operators in (
        (names["flow"], "n", "add-1, add-2, add-3"),
        (names["build"]([1, 2]), "number", "add-1"),
    ):
        caplog.clear()
        flow.validate().validate()
        [message] = caplog.messages
        assert message.startswith(f"variable {variable} has changed since the functions of ")
        assert f" of {operators} were made" in message
    caplog.clear()
    names["build"]([1]).validate()
    assert not caplog.messages


@pytest.mark.parametrize("groups", [0, -1, 1.5, True, "3", 2**15 + 1])
def test_invalid_number_of_key_groups_is_rejected(groups: int) -> None:
    with pytest.raises(FlowError, match=r"flow 'f' cannot have groups=.*from 1 to 32768"):
        Flow("f", groups=groups)
