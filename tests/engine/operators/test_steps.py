"""Stateless steps: labels of outputs, forwarding of tombstones, isolation of failures."""

from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.flow.chains import Chains
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.keygroups import Owners, group_of, owner
from driftline.engine.labels import Label
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.outputs import Outbound, OutputEncoder, Shuffle
from driftline.engine.operators.speculative import Speculative
from driftline.engine.operators.stateless import Filter, FlatMap, Map, Stateless, StatelessStep
from driftline.engine.operators.steps import (
    FAILURES,
    FailureReporter,
    FanOut,
    Step,
    collect_outputs,
)
from driftline.engine.reference import interpret
from driftline.engine.state.managed import ValueState
from driftline.engine.wire.label_columns import Labels
from tests.careless.odd_types import AnyCase
from tests.engine.operators.operators import Collected

Element = tuple[Label, object, int]

labels = st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple)
elements = st.lists(
    st.tuples(labels, st.integers(-3, 9), st.sampled_from([1, 1, 1, -1])),
    min_size=1,
    max_size=10,
    unique_by=lambda e: e[0],
)


def make(
    kind: type[Stateless], function: Callable[..., object], collected: Collected
) -> StatelessStep:
    operator = kind()
    vertex = Vertex(1, operator, "op", (0,), function)
    return StatelessStep(vertex, operator, collected, collected.failures)


def push(step: Step, batch: list[Element]) -> None:
    signs = [sign for _, _, sign in batch]
    step.push(
        [label for label, _, _ in batch],
        [value for _, value, _ in batch],
        None if all(sign > 0 for sign in signs) else signs,
    )


def double(value: int) -> int:
    return 2 * value


def positive(value: int) -> bool:
    return value > 0


def countdown(value: int) -> Iterable[int]:
    return range(value)


def picky(value: int) -> int:
    if value % 3 == 0:
        raise ValueError(f"{value} is bad")
    return value


STEPS: list[tuple[type[Stateless], Callable[..., object]]] = [
    (Map, double),
    (Filter, positive),
    (FlatMap, countdown),
    (Map, picky),
    (Filter, picky),
    (FlatMap, lambda value: [picky(value), value]),
    (FlatMap, picky),
]


def wanted(
    kind: type[Stateless], function: Callable[..., object], element: Element
) -> list[object]:
    """Return the expected outputs of one element: (label, sink, payload, sign)."""
    label, value, sign = element
    try:
        made = function(value)
        if kind is Map:
            return [(label, 0, made, sign)]
        if kind is Filter:
            return [(label, 0, value, sign)] if made else []
        numbered = enumerate(collect_outputs(made))
        return [((*label, number), 0, output, sign) for number, output in numbered]
    except (ValueError, TypeError) as error:
        return [(label, FAILURES, f"{type(error).__name__}: {error}", sign)]


def shown(collected: Collected) -> list[object]:
    found: list[object] = []
    for label, sink, value, sign in collected.pushed:
        if sink == FAILURES:
            assert isinstance(value, tuple)
            assert value[0] == "op"
            value = value[3]
        found.append((label, sink, value, sign))
    return sorted(found, key=repr)


@pytest.mark.parametrize(("kind", "function"), STEPS)
@given(batch=elements)
def test_batch_gives_the_same_outputs_as_single_elements(
    kind: type[Stateless], function: Callable[..., object], batch: list[Element]
) -> None:
    """A raising function does not affect other elements; a tombstone retracts its failure."""
    collected = Collected()
    push(make(kind, function, collected), batch)
    outputs = [output for element in batch for output in wanted(kind, function, element)]
    assert shown(collected) == sorted(outputs, key=repr)


@pytest.mark.parametrize("value", ["text", b"bytes", None, 7, {"one": "output"}])
def test_non_iterable_result_is_rejected(value: object) -> None:
    with pytest.raises(TypeError, match="must return an iterable of outputs"):
        collect_outputs(value)
    assert collect_outputs(number for number in (1, 2)) == [1, 2]


def test_yielded_output_is_copied_before_the_generator_changes_it() -> None:
    def growing() -> Iterator[dict[str, int]]:
        found: dict[str, int] = {}
        for word in "ab":
            found[word] = len(found)
            yield found
        found.clear()

    assert collect_outputs(growing()) == [{"a": 0}, {"a": 0, "b": 1}]


@given(elements)
def test_fan_out_sends_every_element_to_each_edge_with_its_number(batch: list[Element]) -> None:
    edges = [Collected(), Collected(), Collected()]
    push(FanOut(list(edges)), batch)
    for number, edge in enumerate(edges):
        assert edge.pushed == [((*label, number), 0, value, sign) for label, value, sign in batch]


def test_edge_may_change_its_batch_without_affecting_others() -> None:
    class GreedyEdge(Collected):
        def push(self, labels: Labels, values: list[object], signs: list[int] | None) -> None:
            values.clear()

    after = Collected()
    FanOut([GreedyEdge(), after]).push([(1, 0)], ["x"], None)
    assert after.pushed == [((1, 0, 1), 0, "x", 1)]


# Shuffle --------------------------------------------------------------------------------------


def shuffle(key: Callable[..., object], nodes: int) -> tuple[Shuffle, list[Outbound], Collected]:
    outbounds = [Outbound() for _ in range(nodes)]
    barrier = Collected()
    maker = OutputEncoder("in", None)
    step = Shuffle("op", key, "", Owners(nodes), outbounds, FailureReporter(barrier), maker)
    return step, outbounds, barrier


def taken(outbound: Outbound) -> list[Element]:
    """Take the queued batches. Return their elements."""
    return [
        element
        for (labels, values, signs), _ in outbound.take()
        for element in zip(labels, values, signs or [1] * len(labels), strict=True)
    ]


@given(batches=st.lists(elements, max_size=4), nodes=st.integers(1, 4))
@settings(max_examples=100)
def test_shuffle_sends_each_element_once_in_order_to_its_key_owner(
    batches: list[list[Element]], nodes: int
) -> None:
    step, outbounds, barrier = shuffle(lambda value: value, nodes)
    for batch in batches:
        push(step, batch)
    for node, outbound in enumerate(outbounds):
        mine = [
            element
            for batch in batches
            for element in batch
            if owner(group_of(element[1]), nodes) == node
        ]
        assert taken(outbound) == mine
        assert outbound.take() == []
    assert barrier.pushed == []


@given(batch=elements, nodes=st.integers(1, 3))
def test_failing_key_function_fails_only_its_element(batch: list[Element], nodes: int) -> None:
    step, outbounds, barrier = shuffle(picky, nodes)
    push(step, batch)
    good = [(label, sign) for label, value, sign in batch if int(str(value)) % 3]
    sent: list[tuple[Label, int]] = []
    for outbound in outbounds:
        sent += [(label, sign) for label, _, sign in taken(outbound)]
    assert sorted(sent) == sorted(good)
    failed = [(label, sign) for label, _, _, sign in barrier.pushed]
    assert failed == [(label, sign) for label, value, sign in batch if int(str(value)) % 3 == 0]
    for _, sink, value, _ in barrier.pushed:
        assert sink == FAILURES
        assert isinstance(value, tuple)
        assert value[0] == "key of op"


@pytest.mark.parametrize("key", [{"a": 1}, object(), [1], {1}, 2**70])
def test_invalid_key_fails_only_its_element(key: object) -> None:
    step, outbounds, barrier = shuffle(lambda value: key if value == 1 else value, 2)
    step.push([(1, 0), (2, 0)], [1, 2], None)
    assert [label for label, _ in barrier.failed()] == [(1, 0)]
    sent = [label for outbound in outbounds for label, _, _ in taken(outbound)]
    assert sent == [(2, 0)]


# Chains -------------------------------------------------------------------------------------


def diamond() -> Flow:
    """Return a flow with fan-outs, unions, two sinks, two keyed stages, and a raising function."""
    flow = Flow("diamond")
    numbers = flow.source("numbers")
    even = numbers.filter(lambda value: value % 2 == 0, name="even")
    many = numbers.flat_map(countdown, name="many").map(picky, name="picky")
    both = even.union(many, numbers, name="both")
    both.sink("all")

    def total(value: int, state: ValueState[int]) -> tuple[int, int]:
        state.set(state.get(0) * 2 + value)
        return value, state.get(0)

    totals = both.key_by(lambda value: value % 3).scan(total, ValueState("total"), name="totals")
    totals.union(
        flow.source("pairs").map(lambda value: (value, value), name="pair"), name="join"
    ).key_by(0).scan(lambda pair, state: total(pair[1], state), ValueState("again")).sink("last")
    totals.sink("firsts")
    return flow


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), max_size=8, unique_by=lambda e: e[0]),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), max_size=4, unique_by=lambda e: e[0]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100)
def test_connected_chains_match_the_reference(
    left: list[tuple[int, object]], right: list[tuple[int, object]], chance: object
) -> None:
    """Roots arrive in any order, sources interleaved; the net output is that of the label order."""
    flow = diamond()
    barrier = Collected()
    made = make_plan(flow)
    chains = Chains(
        made,
        Owners(1),
        barrier,
        lambda vertex, after, failures, maker: Speculative(vertex, after, failures, encoder=maker),
    )
    roots = [(0, (time, 0), value) for time, value in left]
    roots += [(1, (time, 1), value) for time, value in right]
    chance.shuffle(roots)  # type: ignore[attr-defined]
    for port, label, value in roots:
        chains.entries[port].push([label], [value], None)
        busy = True
        while busy:
            busy = False
            for (_, to), outbounds in chains.outbounds.items():
                for batch, _ in outbounds[0].take():
                    chains.entries[to].push(*batch)
                    busy = True
    wanted = list(interpret(flow, [sorted(left), sorted(right)], dead_letters=True))
    assert [(item.label, item.sink) for item in wanted] == sorted(
        (item.label, item.sink) for item in wanted
    )
    assert sorted(barrier.net(), key=repr) == sorted(
        ((item.label, item.sink, item.value) for item in wanted), key=repr
    )


@pytest.mark.parametrize("texts", [["a", "a"], ["x", "X", "x"], ["x", "y", "x"]])
def test_str_subclass_with_custom_equality_is_encoded_by_its_content(texts: list[str]) -> None:
    maker = OutputEncoder("words", None)
    for found in ([AnyCase(text) for text in texts], [texts[0], *map(AnyCase, texts[1:])]):
        assert maker.pack(list(found)) == maker.pack(list(texts))
        rows: list[object] = [(text, 1) for text in found]
        assert maker.pack(rows) == maker.pack([(text, 1) for text in texts])
