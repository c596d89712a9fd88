"""The simulated flows, and the parts of their outputs that do not depend on the order of arrival.

The flows read records ``{"id": int, "key": str, "text": str}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from msgspec import Struct

from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import load_flow
from driftline.engine.operators.context import Context
from driftline.engine.policy import Policy
from driftline.engine.state.managed import ListState, MapState, ReducingState, ValueState
from driftline.simulation.scenarios.drawn import MODULE, draw_flow

Record = dict[str, object]


class SimulatedFlow(Struct, frozen=True):
    """Flow to simulate.

    `projection`: maps a payload to the part that is the same in every order of arrival; None if
    there is no such part. `order_independent`: whether the labels of the outputs are the same in
    every order of arrival.
    """

    spec: str
    projection: Callable[[object], object] | None = None
    order_independent: bool = True
    flow: Flow | None = None
    """The flow itself; None: `load` loads or draws it by `spec`."""

    def load(self, seed: int, policy: Policy) -> Flow:
        """Return `flow`, the flow that the seed draws, or the flow that `spec` names."""
        if self.flow is not None:
            return self.flow
        if self.spec == MODULE:
            return draw_flow(seed, any_order=not policy.ordered, loops=policy.can_loop)
        return load_flow(self.spec)

    @property
    def loops(self) -> bool:
        """Whether the flow has iterations; False for a drawn flow, as `load` draws iterations only
        for policies that can run them."""
        if self.spec == MODULE:
            return False
        return bool((self.flow or load_flow(self.spec)).loops)


def _word_and_number(value: object) -> object:
    assert isinstance(value, tuple)
    return value[0], value[-1]


SIMULATED = (
    SimulatedFlow("driftline.simulation.scenarios.flows:concatenation"),
    SimulatedFlow("driftline.simulation.scenarios.flows:two_stages", order_independent=False),
    SimulatedFlow("driftline.simulation.scenarios.flows:two_fronts"),
    SimulatedFlow("driftline.simulation.scenarios.flows:counts", _word_and_number),
    SimulatedFlow("driftline.simulation.scenarios.flows:two_counts", _word_and_number),
    SimulatedFlow("driftline.simulation.scenarios.flows:failing", order_independent=False),
    SimulatedFlow("index", _word_and_number),
)


WORDS = ["the", "of", "and", "to", "in", "a", "is", "that", "for", "it"]
RARE = [f"{word}{number}" for word in WORDS for number in range(4)]


def records(rng: Random, count: int, front: int) -> list[object]:
    """Return random records with few keys and few words, so that many elements share a key.

    Sometimes half of the records have many words, so that nodes process large batches.
    `front`: the number of the front that reads the records; it makes their ids unique.
    """
    long_probability = 0.5 if rng.random() < 0.2 else 0.0
    return [
        {
            "id": front * 1000 + number,
            "key": rng.choice("abc"),
            "text": " ".join(_draw_words(rng, long_probability)),
        }
        for number in range(1, count + 1)
    ]


def _draw_words(rng: Random, long_probability: float) -> list[str]:
    if rng.random() < long_probability:
        return rng.sample(RARE, 36)
    return [rng.choice(WORDS) for _ in range(rng.randrange(1, 7))]


def _key(record: Record) -> object:
    return record["key"]


def _append(record: Record, all_ids: ValueState[str]) -> tuple[object, str]:
    joined = f"{all_ids.get('')}.{record['id']}"
    all_ids.set(joined)
    return record["key"], joined


def _words(record: Record) -> list[tuple[str, object]]:
    return [(word, record["id"]) for word in str(record["text"]).split()]


def _count(element: tuple[str, object], total: ReducingState[int]) -> tuple[str, object, int]:
    return element[0], element[1], total.add(1)


def _gather(
    context: Context,
    element: tuple[str, object, int],
    seen: ListState[str],
    last: MapState[str, object],
) -> Iterator[tuple[object, ...]]:
    """Emit any number of outputs, depending on the order of elements, and clear the states."""
    word, document, count = element
    seen.append(word)
    last[word] = document
    if len(seen) > 4:
        yield (context.key, "full", tuple(seen), tuple(last.items()))
        seen.clear()
        if word in last:
            del last[word]
    if count % 2:
        yield (context.key, word, context.random.randrange(100), len(last))


def _sum(one: int, other: int) -> int:
    return one + other


def _fail_on_long(record: Record, all_ids: ValueState[str]) -> tuple[object, str]:
    """Raise for some orders of the earlier elements; speculation may retract such a failure."""
    key, joined = _append(record, all_ids)
    if len(joined) % 5 == 3:
        raise ValueError(f"{joined} has an awkward length")
    return key, joined


concatenation = Flow("concatenation")
concatenation.source("records").key_by(_key).scan(_append, ValueState[str]("ids")).sink()

two_stages = Flow("two-stages")
_counted = (
    two_stages.source("records")
    .flat_map(_words, name="words")
    .key_by(0)
    .scan(_count, ReducingState("total", _sum), name="count")
)
_counted.key_by(2).process(
    _gather, ListState[str]("seen"), MapState[str, object]("last"), name="gather"
).sink("gathered")
_counted.filter(lambda element: element[2] == 3, name="is-third").sink("third")

two_fronts = Flow("two-fronts")
two_fronts.source("left").union(
    two_fronts.source("right").filter(lambda record: len(record["text"]) > 8, name="long")
).key_by(_key).scan(_append, ValueState[str]("ids")).sink()

counts = Flow("counts")
counts.source("records").flat_map(_words, name="words").key_by(0).scan(
    _count, ReducingState("total", _sum), name="count"
).sink()

two_counts = Flow("two-counts")
_words_counted = (
    two_counts.source("records")
    .flat_map(_words, name="words")
    .key_by(0)
    .scan(_count, ReducingState("total", _sum), name="count")
)
_by_initial = _words_counted.map(lambda element: (element[0][0], element[1]), name="initial")
_by_initial.union(
    two_counts.source("others").map(lambda record: (record["key"], record["id"]), name="keys")
).key_by(0).scan(_count, ReducingState("total", _sum), name="count-initials").sink("initials")
_words_counted.sink("words-counted")

failing = Flow("failing")
failing.source("records").key_by(_key).scan(_fail_on_long, ValueState[str]("ids")).sink()
