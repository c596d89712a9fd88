"""Test helpers: keyed operators whose outputs depend on element order, and steps that run them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st

from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.keyed import Keyed
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import FAILURES, FailureReporter, Signs, Values
from driftline.engine.snapshots.jobs import Capture
from driftline.engine.snapshots.merging import restore
from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    UndoLog,
    ValueState,
    undo,
)
from driftline.engine.state.table import StateTable
from driftline.engine.wire.codec import pack
from driftline.engine.wire.label_columns import Labels

Payload = tuple[str, str]
"""(key, text)."""
Element = tuple[Label, Payload]


def join(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    joined = texts.get("") + element[1]
    texts.set(joined)
    return element[0], joined


def fail_on_awkward_lengths(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    """Change the state, then raise, in some orders only."""
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
    """Use three states with clears, removals and overwrites; yield 1 to 3 outputs, or raise."""
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
    """Use one state that changes in part, and is sometimes cleared; raise sometimes."""
    texts.append(element[1])
    if len(texts) > 6:
        texts.clear()
    if len(texts) == 3 and element[1] == "raise":
        raise ValueError(f"after {tuple(texts)}")
    return element[0], *texts


def only_itself(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    """Return an output that depends only on the element."""
    texts.set(texts.get("") + element[1])
    return element


def flow_of(kind: str) -> Flow:
    flow = Flow(kind)
    keyed = flow.source("in").key_by(0)
    if kind == "gather":
        states = ListState[str]("seen"), MapState[str, int]("latest")
        keyed.process(gather, *states, ReducingState[str]("texts", str.__add__), name="op").sink()
    elif kind == "distinct":
        keyed.distinct(name="op").sink()
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


KINDS = ["join", "fail", "gather", "collect", "only_itself", "distinct"]


def make(order: type[Keyed], flow: Flow) -> tuple[Keyed, Collected]:
    collected = Collected()
    vertex = flow.vertices[1]
    return order(vertex, collected, collected.failures), collected


# Environment of a step under test: collects the elements that it pushes and holds


Output = tuple[Label, int, object]
"""(label, sink, payload); the sink of a failure is FAILURES."""


class Collected:
    """End of a chain of steps, and its barrier; keeps all elements in order of arrival."""

    def __init__(self) -> None:
        self.pushed: list[tuple[Label, int, object, int]] = []
        """(label, sink, payload, sign)."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        self.add_outputs(0, labels, values, signs)

    def add_outputs(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        signs = [1] * len(labels) if signs is None else signs
        self.pushed += [
            (label, sink, value, sign)
            for label, value, sign in zip(labels, values, signs, strict=True)
        ]

    @property
    def failures(self) -> FailureReporter:
        """Failure collector for steps."""
        return FailureReporter(self)

    @property
    def tombstones(self) -> int:
        """Number of retracted outputs."""
        return sum(sign < 0 for _, _, _, sign in self.pushed)

    def net(self) -> list[Output]:
        """Return the remaining outputs, in label order. Tombstones must follow their elements."""
        there: dict[tuple[Label, int], list[object]] = defaultdict(list)
        for label, sink, value, sign in self.pushed:
            here = there[label, sink]
            if sign > 0:
                here.append(value)
            else:
                del here[[pack(v) for v in here].index(pack(value))]
        return [
            (label, sink, value)
            for (label, sink), values in sorted(there.items())
            for value in values
        ]

    def failed(self) -> list[tuple[Label, object]]:
        """Return (label, error) of the remaining failures."""
        found = []
        for label, sink, value in self.net():
            if sink == FAILURES:
                assert isinstance(value, tuple)
                found.append((label, value[3]))
        return found


# States of a keyed step, in its table or in snapshots


Held = dict[object, list[dict[object, object]]]
"""key -> for each state, slot -> value."""


def held(table: StateTable) -> Held:
    """Return the contents of a table, without keys whose states are empty."""
    found = {key: [dict(state.slots()) for state in table.states(key)] for key in list(table)}
    return {key: slots for key, slots in found.items() if any(slots)}


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


# Elements in random arrival order: late, retracted, replaced


@dataclass
class Story:
    """Batches of (label, payload, sign) in order of arrival, and the remaining elements."""

    batches: list[list[tuple[Label, Payload, int]]] = field(default_factory=list)
    frontiers: list[int] = field(default_factory=list)
    """Frontier after each batch: later batches have no element with a smaller time."""
    exactly: list[bool] = field(default_factory=list)
    snapshots: list[bool] = field(default_factory=list)
    survivors: list[Element] = field(default_factory=list)
    """The remaining elements in label order."""


labels = st.tuples(
    st.integers(1, 15), st.integers(0, 1), st.lists(st.integers(0, 2), max_size=2)
).map(lambda parts: (parts[0], parts[1], *parts[2]))
payloads = st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "z", "uv", "raise"]))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Draw stories: elements arrive late; some are retracted, or replaced under their label."""
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


# Plain twin of a keyed step: applies elements one by one, in the given order


def one_by_one(vertex: Vertex, elements: Sequence[Element]) -> tuple[list[object], Held]:
    """Apply elements in this order. Return outputs (label, sink, payload or error) and states."""
    assert vertex.function is not None
    undo_log: UndoLog = []
    table = StateTable(vertex.states, undo_log)
    outputs: list[object] = []
    for label, value in elements:
        try:
            if not vertex.operator.emits_many:
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
