"""Whatever the order of arrival, the outcome is that of the label order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import driftline.engine.state.changelog
from driftline.engine.flow.context import Context
from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.labels import INFINITY, Label
from driftline.engine.order.keyed import Arrival, Keyed
from driftline.engine.order.speculative import Speculative
from driftline.engine.order.steps import FAILURES
from driftline.engine.snapshots.jobs import Capture
from driftline.engine.snapshots.merging import restore
from driftline.engine.state.changelog import MANY
from driftline.engine.state.managed import (
    Change,
    ListState,
    MapState,
    ReducingState,
    StateTable,
    ValueState,
    undo,
)
from tests.engine.order.steps import Collected

Payload = tuple[str, str]
"""(key, text)"""
Element = tuple[Label, Payload]
Held = dict[object, list[dict[object, object]]]
"""key -> for each state, slot -> value"""


# Functions under test -------------------------------------------------------------------------


def join(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    joined = texts.get("") + element[1]
    texts.set(joined)
    return element[0], joined


def fail_on_awkward_lengths(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    """Changes its state before it raises, and raises in some orders only."""
    key, joined = join(element, texts)
    if len(joined) % 3 == 2:
        raise ValueError(f"{joined!r} is awkward")
    return key, joined


def gather(
    context: Context,
    element: Payload,
    seen: ListState[str],
    latest: MapState[str, int],
    texts: ReducingState[str],
) -> Iterator[object]:
    """Several outputs or none, three states, clears, removals, overwrites; sometimes it raises."""
    text = element[1]
    seen.append(text)
    latest[text] = len(seen)
    if len(seen) > 2:
        yield ("full", tuple(seen), tuple(latest.items()))
        seen.clear()
    if text == "x" and "y" in latest:
        del latest["y"]
        yield ("total", texts.add(text))
    if text == "z" and len(seen) > 1:
        seen[0] = seen.pop()
        latest.clear()
    if text == "raise" and len(latest) % 2:
        raise ValueError(f"after {tuple(seen)}")
    yield (context.key, text, context.random.randrange(100), len(seen))


def collect(element: Payload, texts: ListState[str]) -> tuple[str, ...]:
    """One state whose changes do not replace the whole; sometimes it is cleared."""
    texts.append(element[1])
    if len(texts) > 6:
        texts.clear()
    if len(texts) == 3 and element[1] == "raise":
        raise ValueError(f"after {tuple(texts)}")
    return element[0], *texts


def only_itself(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    """Its output depends on nothing but the element."""
    texts.set(texts.get("") + element[1])
    return element


def flow_of(kind: str) -> Flow:
    flow = Flow(kind)
    keyed = flow.source("in").key_by(0)
    if kind == "gather":
        states = ListState[str]("seen"), MapState[str, int]("latest")
        keyed.process(gather, *states, ReducingState[str]("texts", str.__add__), name="op").sink()
    elif kind == "collect":
        keyed.scan(collect, ListState[str]("texts"), name="op").sink()
    else:
        functions: dict[str, Callable[..., object]] = {
            "join": join,
            "fail": fail_on_awkward_lengths,
            "only_itself": only_itself,
        }
        keyed.scan(functions[kind], ValueState[str]("texts"), name="op").sink()
    return flow


KINDS = ["join", "fail", "gather", "collect", "only_itself"]


def make(order: type[Keyed], flow: Flow) -> tuple[Keyed, Collected]:
    collected = Collected()
    vertex = flow.vertices[1]
    return order(vertex, collected, collected.failures), collected


# The dumb twin --------------------------------------------------------------------------------


def held(table: StateTable) -> Held:
    """What a table holds; a key with nothing in its states counts as not there."""
    found = {key: [dict(state.slots()) for state in table.states(key)] for key in list(table)}
    return {key: slots for key, slots in found.items() if any(slots)}


def one_by_one(vertex: Vertex, elements: Sequence[Element]) -> tuple[list[object], Held]:
    """Outputs (label, sink, payload or error) and states of elements applied in this order."""
    assert vertex.function is not None
    undo_log: list[Change] = []
    table = StateTable(vertex.states, undo_log)
    outputs: list[object] = []
    for label, value in elements:
        try:
            if vertex.kind == "scan":
                result = vertex.function(value, *table.states(value[0]))
                outputs.append((label, 0, result))
            else:
                made = vertex.function(Context(label, value[0]), value, *table.states(value[0]))
                numbered = enumerate(list(made))  # type: ignore[call-overload]
                outputs += [((*label, number), 0, output) for number, output in numbered]
        except ValueError as error:
            undo(undo_log)
            outputs.append((label, FAILURES, f"ValueError: {error}"))
        undo_log.clear()
    return sorted(outputs, key=repr), held(table)


def net(collected: Collected) -> list[object]:
    shown: list[object] = []
    for label, sink, value in collected.net():
        if sink == FAILURES:
            assert isinstance(value, tuple)
            value = value[3]
        shown.append((label, sink, value))
    return sorted(shown, key=repr)


# Random arrivals ------------------------------------------------------------------------------


@dataclass
class Story:
    """Batches of (label, payload, sign) in order of arrival, and the elements that remain."""

    batches: list[list[tuple[Label, Payload, int]]] = field(default_factory=list)
    frontiers: list[int] = field(default_factory=list)
    """After each batch: no later batch has an element with a smaller time."""
    exactly: list[bool] = field(default_factory=list)
    snapshots: list[bool] = field(default_factory=list)
    survivors: list[Element] = field(default_factory=list)
    """In label order."""


labels = st.tuples(
    st.integers(1, 15), st.integers(0, 1), st.lists(st.integers(0, 2), max_size=2)
).map(lambda parts: (parts[0], parts[1], *parts[2]))
payloads = st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "z", "uv", "raise"]))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Elements arrive late, some are taken back, some are replaced by others with their label."""
    chance = Random(draw(st.integers(0, 2**32)))
    story = Story()
    least = draw(st.sampled_from([0, 3, 8]))
    found = draw(
        st.lists(st.tuples(labels, payloads), min_size=least, max_size=20, unique_by=lambda e: e[0])
    )
    spread = draw(st.sampled_from([20.0, 3.0, 0.0]))
    events: list[tuple[float, tuple[Label, Payload, int]]] = []
    for label, payload in found:
        at = label[0] + chance.random() * spread
        events.append((at, (label, payload, 1)))
        fate = chance.choice(["stays", "stays", "stays", "goes", "is replaced"])
        if fate != "stays":
            events.append((at + 0.001 + chance.random() * spread, (label, payload, -1)))
        if fate == "is replaced":
            payload = draw(payloads)
            events.append((at + 0.002 + chance.random() * spread, (label, payload, 1)))
        if fate != "goes":
            story.survivors.append((label, payload))
    story.survivors.sort()
    events.sort(key=lambda found: found[0])
    arrivals = [element for _, element in events]
    while arrivals:
        size = chance.randint(1, 5)
        story.batches.append(arrivals[:size])
        arrivals = arrivals[size:]
        least = min((label[0] for label, _, _ in arrivals), default=20)
        story.frontiers.append(chance.choice([0, chance.randint(0, least), least]))
        story.exactly.append(chance.random() < 0.3)
        story.snapshots.append(chance.random() < 0.3)
    return story


def push(step: Keyed, batch: Sequence[tuple[Label, Payload, int]]) -> None:
    signs = [sign for _, _, sign in batch]
    step.push(
        [label for label, _, _ in batch],
        [payload for _, payload, _ in batch],
        None if all(sign > 0 for sign in signs) else signs,
    )
    step.validate()


# Speculative ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_the_net_output_is_that_of_the_surviving_elements_in_label_order(
    kind: str, story: Story
) -> None:
    flow = flow_of(kind)
    step, collected = make(Speculative, flow)
    for batch in story.batches:
        push(step, batch)
    outputs, states = one_by_one(flow.vertices[1], story.survivors)
    event(f"tombstones: {bool(collected.tombstones)}")
    assert net(collected) == outputs
    assert held(step.table) == states


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_settling_what_is_final_changes_neither_outputs_nor_states(kind: str, story: Story) -> None:
    flow = flow_of(kind)
    step, collected = make(Speculative, flow)
    frontier = 0
    for batch, to, exactly in zip(story.batches, story.frontiers, story.exactly, strict=True):
        push(step, batch)
        frontier = max(frontier, to)
        step.settle(frontier, exactly)
        step.validate()
    outputs, states = one_by_one(flow.vertices[1], story.survivors)
    assert net(collected) == outputs
    assert held(step.table) == states
    step.settle(INFINITY)
    assert held(step.table) == states


def restored(flow: Flow, chains: Sequence[bytes]) -> Held:
    table = StateTable(flow.vertices[1].states, [])
    restore({"op": table}, chains)
    return held(table)


def snapshot(step: Keyed, before: int) -> list[bytes]:
    step.settle(before, exactly=True)
    return chains_of(taken(step))


def taken(step: Keyed) -> Capture:
    capture = Capture()
    capture.take(step.changelog)
    return capture


def chains_of(capture: Capture) -> list[bytes]:
    while capture.step():
        pass
    return list(capture.segments.values())


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_snapshots_at_any_frontier_hold_the_state_as_of_that_frontier(
    kind: str, story: Story
) -> None:
    flow = flow_of(kind)
    vertex = flow.vertices[1]
    step, _ = make(Speculative, flow)
    chains: list[bytes] = []
    frontier = 0
    for batch, to, wanted in zip(story.batches, story.frontiers, story.snapshots, strict=True):
        push(step, batch)
        frontier = max(frontier, to)
        step.settle(frontier)
        if wanted:
            chains += snapshot(step, frontier)
            final = [element for element in story.survivors if element[0][0] < frontier]
            assert restored(flow, chains) == one_by_one(vertex, final)[1]
    chains += snapshot(step, INFINITY)
    assert restored(flow, chains) == one_by_one(vertex, story.survivors)[1]


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_closing_what_nothing_can_come_before_changes_neither_outputs_nor_snapshots(
    kind: str, story: Story
) -> None:
    flow = flow_of(kind)
    vertex = flow.vertices[1]
    step, collected = make(Speculative, flow)
    assert isinstance(step, Speculative)
    chains: list[bytes] = []
    complete = delivered = closed = 0
    with patch.object(driftline.engine.state.changelog, "MANY", 1):
        for batch, to, exactly, wanted in zip(
            story.batches, story.frontiers, story.exactly, story.snapshots, strict=True
        ):
            push(step, batch)
            delivered, complete = complete, max(complete, to)
            step.close(complete)
            step.validate()
            closed += sum(bool(batch.chunk) for batch in step.batches)
            step.settle(delivered, exactly)
            if wanted:
                chains += snapshot(step, delivered)
                final = [element for element in story.survivors if element[0][0] < delivered]
                assert restored(flow, chains) == one_by_one(vertex, final)[1]
        chains += snapshot(step, INFINITY)
    event(f"closed: {bool(closed)}")
    outputs, states = one_by_one(vertex, story.survivors)
    assert net(collected) == outputs
    assert held(step.table) == restored(flow, chains) == states


def test_what_is_closed_is_kept_as_bytes_only() -> None:
    step, _ = make(Speculative, flow_of("collect"))
    assert isinstance(step, Speculative)
    elements = [((7, 0, number), (f"key {number}", "x"), 1) for number in range(MANY)]
    push(step, elements)
    [batch] = step.batches
    step.close(7)
    assert (len(batch.chunk), len(batch.undo_log)) == (0, MANY)
    step.close(8)
    assert len(batch.chunk) > MANY
    assert batch.undo_log == batch.values == batch.results == []


def test_rows_of_a_key_come_in_label_order_though_its_batches_settle_in_another() -> None:
    flow = flow_of("join")
    step, _ = make(Speculative, flow)
    push(step, [((1, 0), ("a", "x"), 1), ((9, 0), ("b", "z"), 1)])
    push(step, [((2, 0), ("a", "y"), 1)])
    step.settle(5)  # the second batch is final, the first only in part
    assert restored(flow, snapshot(step, 5)) == {"a": [{None: "xy"}]}


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
def test_input_in_order_is_never_taken_back(kind: str, story: Story) -> None:
    flow = flow_of(kind)
    step, collected = make(Speculative, flow)
    assert isinstance(step, Speculative)
    for start in range(0, len(story.survivors), 3):
        push(step, [(*element, 1) for element in story.survivors[start : start + 3]])
    outputs, _ = one_by_one(flow.vertices[1], story.survivors)
    assert collected.tombstones == 0
    assert step.late == 0
    assert net(collected) == outputs


@given(stories())
def test_an_output_that_stays_the_same_after_a_replay_is_not_sent_again(story: Story) -> None:
    step, collected = make(Speculative, flow_of("only_itself"))
    for batch in story.batches:
        for element in batch:
            push(step, [element])
    sent = [(label, value, sign) for label, _, value, sign in collected.pushed]
    assert sorted(sent) == sorted(element for batch in story.batches for element in batch)


@given(stories())
def test_no_output_is_sent_twice_without_being_taken_back_in_between(story: Story) -> None:
    step, collected = make(Speculative, flow_of("join"))
    for batch in story.batches:
        push(step, batch)
    there: dict[Label, list[object]] = {}
    for label, _, value, sign in collected.pushed:
        here = there.setdefault(label, [])
        if sign < 0:
            here.remove(value)  # a tombstone comes after what it takes back
        else:
            here.append(value)
    many = [label for label, values in there.items() if len(values) > 1]
    assert many == []


def test_equal_is_not_the_same_when_outputs_are_compared() -> None:
    flow = Flow("types")

    def first_decides(element: tuple[str, int], one: ValueState[object]) -> object:
        """1 if it is the first, True if it is not."""
        is_first = one.is_empty()
        one.set(True)
        return 1 if is_first else True

    flow.source("in").key_by(0).scan(first_decides, ValueState("one"), name="op").sink()
    step, collected = make(Speculative, flow)
    step.push([(2, 0)], [("a", 2)], None)
    step.push([(1, 0)], [("a", 1)], None)
    assert [repr(value) for _, _, value in collected.net()] == ["1", "True"]


def test_a_result_that_a_later_map_turns_into_something_that_travels_may_come_late() -> None:
    flow = Flow("sets")

    def growing(element: tuple[str, str], texts: ValueState[str]) -> set[str]:
        texts.set(texts.get("") + element[1])
        return set(texts.get(""))

    flow.source("in").key_by(0).scan(growing, ValueState("texts"), name="op").sink()
    step, collected = make(Speculative, flow)
    step.push([(2, 0)], [("a", "y")], None)
    step.push([(1, 0)], [("a", "x")], None)
    there: list[object] = []
    for _, _, value, sign in collected.pushed:
        there.append(value) if sign > 0 else there.remove(value)
    assert there in ([{"x"}, {"x", "y"}], [{"x", "y"}, {"x"}])


def test_a_function_that_raises_leaves_no_trace_in_the_state_and_others_are_not_affected() -> None:
    flow = flow_of("fail")
    step, collected = make(Speculative, flow)
    push(step, [((1, 0), ("a", "uv"), 1), ((2, 0), ("a", "x"), 1), ((3, 0), ("b", "x"), 1)])
    assert collected.failed() == [((1, 0), "ValueError: 'uv' is awkward")]
    assert [(label, value) for label, sink, value in collected.net() if sink == 0] == [
        ((2, 0), ("a", "x")),
        ((3, 0), ("b", "x")),
    ]


def test_a_failure_that_was_true_in_a_wrong_order_only_is_taken_back() -> None:
    step, collected = make(Speculative, flow_of("fail"))
    push(step, [((2, 0), ("a", "uv"), 1)])
    assert collected.failed() == [((2, 0), "ValueError: 'uv' is awkward")]
    push(step, [((1, 0), ("a", "x"), 1)])
    assert collected.failed() == []
    assert [value for _, _, value in collected.net()] == [("a", "x"), ("a", "xuv")]


def test_a_failure_says_operator_key_record_and_line() -> None:
    step, collected = make(Speculative, flow_of("fail"))
    push(step, [((1, 0), ("a", "uv"), 1)])
    [(label, _, value)] = collected.net()
    assert isinstance(value, tuple)
    operator, key, record, error, line = value
    assert (label, operator, key, record) == ((1, 0), "op", "'a'", "('a', 'uv')")
    assert error == "ValueError: 'uv' is awkward"
    assert "test_keyed.py" in line
    assert "in fail_on_awkward_lengths" in line


def test_an_operator_that_returns_no_iterable_fails_at_its_element() -> None:
    flow = Flow("wrong")
    flow.source("in").key_by(0).process(lambda _, element: "text", name="op").sink()
    step, collected = make(Speculative, flow)
    step.push([(1, 0)], [("a", "x")], None)
    [(label, error)] = collected.failed()
    assert label == (1, 0)
    assert "must return an iterable" in str(error)


def test_random_numbers_are_those_of_the_label_in_every_order() -> None:
    flow = Flow("random")

    def draw(context: Context, element: Payload) -> list[float]:
        return [context.random.random()]

    flow.source("in").key_by(0).process(draw, name="op").sink()
    elements: list[tuple[Label, Payload, int]] = [((t, 0), ("a", "x"), 1) for t in range(1, 6)]
    one, in_order = make(Speculative, flow)
    push(one, elements)
    other, reversed_order = make(Speculative, flow)
    for element in reversed(elements):
        push(other, [element])
    assert net(in_order) == net(reversed_order)
    assert reversed_order.tombstones == 0
    values = [value for _, _, value in in_order.net()]
    assert len(set(values)) == len(values)


def test_a_key_whose_states_are_empty_is_forgotten_once_that_is_final() -> None:
    flow = Flow("forget")

    def toggle(element: Payload, texts: ValueState[str]) -> bool:
        if texts.is_empty():
            texts.set(element[1])
        else:
            texts.clear()
        return texts.is_empty()

    flow.source("in").key_by(0).scan(toggle, ValueState("texts"), name="op").sink()
    step, _ = make(Speculative, flow)
    push(step, [((1, 0), ("a", "x"), 1), ((2, 0), ("a", "x"), 1), ((3, 0), ("b", "x"), 1)])
    step.settle(10)
    assert list(step.table) == ["b"]


def test_memory_of_settled_elements_is_given_back() -> None:
    step, _ = make(Speculative, flow_of("join"))
    assert isinstance(step, Speculative)
    for time in range(1, 200):
        push(step, [((time, 0), ("a", "x"), 1), ((time, 1), ("b", "x"), 1)])
        push(step, [((time, 0, 1), ("a", "y"), 1), ((time, 0, 1), ("a", "y"), -1)])
        step.settle(time - 2)
    assert sum(len(batch.labels) for batch in step.batches) < 20


# Arrival --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(elements=st.lists(st.tuples(labels, payloads), max_size=16, unique_by=lambda e: e[0]))
def test_without_an_order_elements_are_applied_as_they_come(
    kind: str, elements: list[Element]
) -> None:
    flow = flow_of(kind)
    step, collected = make(Arrival, flow)
    for start in range(0, len(elements), 4):
        push(step, [(*element, 1) for element in elements[start : start + 4]])
    outputs, states = one_by_one(flow.vertices[1], elements)
    assert net(collected) == outputs
    assert held(step.table) == states


@pytest.mark.parametrize("kind", KINDS)
@given(
    epochs=st.lists(
        st.lists(st.tuples(labels, payloads), max_size=5, unique_by=lambda e: e[0]), max_size=4
    )
)
def test_without_an_order_a_snapshot_holds_the_epochs_that_have_ended(
    kind: str, epochs: list[list[Element]]
) -> None:
    flow = flow_of(kind)
    step, _ = make(Arrival, flow)
    chains: list[bytes] = []
    before: list[Element] = []
    captures: list[Capture] = []
    for elements in epochs:
        push(step, [(*element, 1) for element in elements])
        captures.append(taken(step))  # written when the next epoch has begun
    for elements, capture in zip(epochs, captures, strict=True):
        before += elements
        chains += chains_of(capture)
        assert restored(flow, chains) == one_by_one(flow.vertices[1], before)[1]


def test_stories_are_not_dull() -> None:
    """The strategy makes what the tests above are for: late elements in most of its stories."""
    late = []

    @given(stories())
    @settings(max_examples=100)
    def look(story: Story) -> None:
        arrivals = [label for batch in story.batches for label, _, _ in batch]
        late.append(any(one > other for one, other in pairwise(arrivals)))

    look()
    assert sum(late) > len(late) / 2
