"""Turns are bounded in time, and the outcome does not depend on where batches are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from driftline import Flow, ValueState
from driftline.deploy.node.blocks import Batch
from driftline.deploy.node.node import Node
from driftline.deploy.node.pace import AT_FIRST, CARELESS, TURN_S, Pace
from driftline.deploy.simulation.scenarios.flows import two_fronts
from driftline.deploy.simulation.scenarios.scenario import scenario
from driftline.deploy.simulation.simulation import Simulation
from driftline.engine.flow.plan import plan
from driftline.engine.labels import Label
from driftline.engine.policy import policy
from driftline.engine.texts import time_in_words
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.label_columns import LabelColumn
from driftline.engine.wire.party import Party


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(count: int, time: int = 5) -> Batch:
    payloads: list[object] = list(range(count))
    return Batch(LabelColumn((time, 0), range(count)), pack_rows(payloads), None)


def work(pace: Pace, clock: Clock, rest: Batch | None, each_s: float) -> list[int]:
    """Work off a batch, `each_s` seconds an element. Returns the number of elements per turn."""
    taken = []
    while rest is not None:
        pace.begin()
        first, rest = pace.cut(0, rest)
        pace.begin_batch(0, first)
        clock.now += each_s * len(first.labels)
        pace.end_batch(0, len(first.labels))
        taken.append(len(first.labels))
    return taken


def test_a_turn_takes_what_fits_once_it_is_known_what_an_element_costs() -> None:
    clock = Clock()
    first, *others, _ = work(Pace(plan(two_fronts), clock), clock, batch(1000), 0.01)
    assert first <= AT_FIRST
    assert len(others) > 50
    assert all(0.5 < count * 0.01 / TURN_S < 1.5 for count in others[10:])


def test_elements_that_are_quick_are_never_parted() -> None:
    clock = Clock()
    pace = Pace(plan(two_fronts), clock)
    work(pace, clock, batch(AT_FIRST), 2e-6)
    assert work(pace, clock, batch(10_000), 2e-6) == [10_000]


def test_an_element_that_takes_longer_than_a_turn_is_worked_off_all_the_same() -> None:
    clock = Clock()
    taken = work(Pace(plan(two_fronts), clock), clock, batch(AT_FIRST + 20), 7.0)
    assert taken[1:] == [1] * (len(taken) - 1)


def test_without_a_clock_nothing_is_parted() -> None:
    assert work(Pace(plan(two_fronts)), Clock(), batch(100_000), 1.0) == [100_000]


def test_what_is_cut_is_all_there_in_its_order() -> None:
    labels: list[Label] = [(1, 0), (2, 0), (3, 0)]
    whole = Batch(labels, pack_rows(["a", "b", "c"]), [1, -1, 1])
    first, rest = whole.cut(2)
    assert first.elements() == (labels[:2], ["a", "b"], [1, -1])
    assert rest.elements() == (labels[2:], ["c"], [1])


def test_after_a_death_elements_are_noted_one_by_one_until_the_run_is_past_it() -> None:
    clock = Clock()
    notes: list[str] = []
    pace = Pace(plan(two_fronts), clock, careful=(5, 6), note=notes.append)
    assert work(pace, clock, batch(3, time=4), 0.0) == [3]
    assert work(pace, clock, batch(3, time=5), 0.0) == [1, 1, 1]
    said = [note for note in notes if note]
    assert "label [5, 0, 1]" in said[2]
    assert "record 1" in said[2]
    assert notes[-1] == ""
    pace.moved_to(6)
    assert work(pace, clock, batch(2), 0.0) == [1, 1]
    pace.moved_to(7)
    assert work(pace, clock, batch(2), 0.0) == [2]


def spelled(text: str) -> str:
    return text


def chained() -> Flow:
    flow = Flow("chained")
    words = flow.source("a").map(spelled, name="slow").map(spelled)
    words.key_by(spelled).scan(lambda word, n: word, ValueState("n"), name="count").map(
        spelled, name="last"
    ).sink("words")
    flow.source("plain").key_by(0).scan(lambda word, n: word, ValueState("n"), name="of 0").sink(
        "plain words"
    )
    flow.source("single").filter(bool, name="only").sink("single words")
    return flow


OPERATORS = [
    "operators 'slow', 'map-2', 'key of count' after source 'a'",
    "source 'plain'",
    "operator 'only' after source 'single'",
    "operators 'count', 'last'",
    "operator 'of 0'",
]


@pytest.mark.parametrize(("port", "operators"), list(enumerate(OPERATORS)))
def test_what_a_node_does_is_told_with_all_operators_of_the_chain_label_and_record(
    port: int, operators: str
) -> None:
    notes: list[str] = []
    pace = Pace(plan(chained()), Clock(), careful=(5, 6), note=notes.append)
    assert pace.doing() == "work for no single element"
    pace.begin_batch(port, Batch([(5, 0)], pack_rows(["x" * 300]), None))
    cut = "'" + "x" * 199 + "… (302 characters)"
    assert pace.doing() == f"{operators}, label [5, 0], record {cut}"
    assert notes[0].startswith(f"{operators}, label [5, 0], ")
    assert notes[0].endswith(f"record {cut}")
    live: list[Label] = [(1763856304123456, 0), (1763856304123457, 0)]
    pace.begin_batch(port, Batch(live, pack_rows(["a", "b"]), None))
    taken = time_in_words(live[0][0])
    assert pace.doing() == (
        f"{operators}, one of 2 elements, the first: label {list(live[0])} ({taken}), record 'a'"
    )


class Hurried(Simulation):
    """Every look at the clock may find that the turn is over; sometimes nodes are careful."""

    def _node(self, index: int) -> Callable[[str], Sequence[Party]]:
        make = super()._node(index)
        chance = Random(self.scenario.seed)
        clock = Clock()

        def tick() -> float:
            clock.now += chance.choice((0.0, 0.0, 0.001, 0.01, 0.2))
            return clock.now

        def hurried(process: str) -> Sequence[Party]:
            parties = make(process)
            node = parties[0]
            assert isinstance(node, Node)
            node.pace = Pace(self.plan, tick, careful=chance.choice((CARELESS, CARELESS, (3, 40))))
            return parties

        return hurried


@pytest.mark.parametrize(
    ("name", "ordering"),
    [
        ("exactly-once", "speculative"),
        ("exactly-once", "buffered"),
        ("two-phase", "speculative"),
        ("strong-productions", "speculative"),
        ("at-least-once", "speculative"),
    ],
)
def test_wherever_turns_end_the_outcome_is_the_same(name: str, ordering: str) -> None:
    for seed in range(1, 11):
        what = replace(scenario(seed, name=name), policy=policy(name, ordering))
        assert not Hurried(what).run().problem, f"seed {seed}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1, 3000, 100))
def test_wherever_turns_end_the_outcome_is_the_same_for_many_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        assert not Hurried(scenario(seed)).run().problem, f"seed {seed}"
