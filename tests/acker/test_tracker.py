"""The frontier never passes what is in flight, never goes back, and gets to the end."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from acker.tracker import Tracker
from engine.labels import INFINITY

STAGES = 3
"""Stages of the flow; one more stands for what is held back on its way out."""

Cell = tuple[int, int, int]


@dataclass(frozen=True)
class Flying:
    """A frame, or a token, that has been sent and not been worked off yet."""

    stage: int
    time: int
    id: int
    by: int
    """The node that works it off."""


@dataclass
class World:
    """The dumb twin: fronts and nodes that know every frame in flight.

    What they tell the tracker reaches it late, in order for each teller only.
    """

    chance: Random
    fronts: int
    nodes: int
    tracker: Tracker
    start: int
    flying: set[Flying] = field(default_factory=set)
    next: list[int] = field(init=False)
    durable: list[int] = field(init=False)
    told: dict[str, list[tuple[object, ...]]] = field(init=False)

    def __post_init__(self) -> None:
        self.next = [self.start] * self.fronts
        self.durable = [self.start] * self.fronts
        tellers = [f"front-{i}" for i in range(self.fronts)]
        self.told = {name: [] for name in tellers + [f"node-{i}" for i in range(self.nodes)]}

    def send(self, stage: int, time: int) -> int:
        frame = Flying(stage, time, self.chance.getrandbits(63), self.chance.randrange(self.nodes))
        self.flying.add(frame)
        return frame.id

    def front_turn(self) -> None:
        """A front sends a few roots, tracked under the smallest time, and promises."""
        front = self.chance.randrange(self.fronts)
        if self.next[front] >= INFINITY:
            return
        roots: list[tuple[int, int]] = []
        for _ in range(self.chance.randrange(3)):
            time = self.next[front] + self.chance.randrange(3)
            roots.append((time, self.send(0, time)))
            self.next[front] = time + 1 + self.chance.randrange(3)
        if self.chance.random() < 0.1:
            self.next[front] = INFINITY
        self.durable[front] = self.chance.randint(self.durable[front], self.next[front])
        self.told[f"front-{front}"].append((front, self.next[front], self.durable[front], roots))

    def node_turn(self) -> None:
        """A node works off some of its frames, and acknowledges all of them in one batch."""
        node = self.chance.randrange(self.nodes)
        mine = sorted((f for f in self.flying if f.by == node), key=lambda f: f.id)
        cells: dict[tuple[int, int], int] = {}
        for frame in mine[: self.chance.randint(0, 4)]:
            self.flying.remove(frame)
            cells[frame.stage, frame.time] = cells.get((frame.stage, frame.time), 0) ^ frame.id
            for stage in range(frame.stage + 1, STAGES + 1):
                for _ in range(self.chance.choice([0, 0, 1, 2]) if len(self.flying) < 40 else 0):
                    made = self.send(stage, frame.time)
                    cells[stage, frame.time] = cells.get((stage, frame.time), 0) ^ made
        if cells:
            batch = [(stage, time, ids) for (stage, time), ids in cells.items()]
            self.told[f"node-{node}"].append((batch,))

    def tell(self) -> None:
        """Something that was told reaches the tracker."""
        teller = self.chance.choice(sorted(self.told))
        if not self.told[teller]:
            return
        said = self.told[teller].pop(0)
        if teller.startswith("front"):
            self.tracker.promise(*said)  # type: ignore[arg-type]
        else:
            self.tracker.acknowledge(*said)  # type: ignore[arg-type]

    def bound(self, stage: int) -> int:
        """The largest frontier of a stage that is true."""
        flying = [frame.time for frame in self.flying if frame.stage <= stage]
        return min([*self.next, *flying])

    def finish(self) -> None:
        """Fronts end, everything is worked off, everything is told."""
        for front in range(self.fronts):
            self.next[front] = self.durable[front] = INFINITY
            self.told[f"front-{front}"].append((front, INFINITY, INFINITY, []))
        while self.flying or any(self.told.values()):
            self.node_turn()
            self.tell()


@given(
    seed=st.integers(0, 2**32),
    fronts=st.integers(1, 3),
    nodes=st.integers(1, 3),
    start=st.sampled_from([0, 5]),
    turns=st.integers(1, 120),
)
@settings(max_examples=250)
def test_the_frontier_is_true_at_every_moment_and_reaches_the_end(
    seed: int, fronts: int, nodes: int, start: int, turns: int
) -> None:
    chance = Random(seed)
    world = World(chance, fronts, nodes, Tracker(STAGES, fronts, nodes, start), start)
    tracker = world.tracker
    last: tuple[int, ...] = (start,) * (STAGES + 1)
    moved = False
    for _ in range(turns):
        chance.choice([world.front_turn, world.node_turn, world.tell, world.tell])()
        found = tracker.frontiers()
        assert len(found) == STAGES + 1
        for stage, frontier in enumerate(found):
            assert frontier <= world.bound(stage), f"passes something in flight in stage {stage}"
            assert frontier >= last[stage], "goes back"
        assert found[-1] <= min(world.durable), "passes an input that may be forgotten"
        assert list(found) == sorted(found, reverse=True), "a later stage is ahead of an earlier"
        moved = moved or found[-1] > start
        last = found
    event(f"moved before the end: {moved}")
    world.finish()
    assert tracker.frontiers() == (INFINITY,) * (STAGES + 1)
    assert tracker.oldest() is None


@given(st.integers(0, 2**32))
def test_once_all_is_told_the_frontier_is_as_far_as_it_may_be(seed: int) -> None:
    """Liveness: nothing but what is in flight, promises and durability holds it back."""
    chance = Random(seed)
    world = World(chance, 2, 2, Tracker(STAGES, 2, 2), 0)
    for _ in range(60):
        chance.choice([world.front_turn, world.node_turn])()
    while any(world.told.values()):
        world.tell()
    bounds = [world.bound(stage) for stage in range(STAGES + 1)]
    bounds[-1] = min(bounds[-1], *world.durable)
    assert list(world.tracker.frontiers()) == bounds
    oldest = min(((f.time, f.stage) for f in world.flying), default=None)
    assert world.tracker.oldest() == oldest


@given(st.permutations([((0, 1, 7),), ((0, 1, 7 ^ 8 ^ 9), (1, 1, 8 ^ 9)), ((1, 1, 8 ^ 9),)]))
def test_batches_may_come_in_any_order(batches: list[Iterable[Cell]]) -> None:
    tracker = Tracker(2, 1, 1)
    tracker.promise(0, 5, 5, [(1, 8 ^ 9)])
    for batch in batches:
        assert tracker.frontiers()[-1] == 1
        tracker.acknowledge(batch)
    assert tracker.frontiers() == (5, 5, 5)


def test_a_batch_that_is_applied_twice_would_cancel_itself() -> None:
    """Why batches are applied exactly once: XOR is not idempotent."""
    tracker = Tracker(1, 1, 1)
    tracker.promise(0, 5, 5, [(1, 7)])
    tracker.acknowledge([(0, 1, 7)])
    assert tracker.processed == 5
    twice = Tracker(1, 1, 1)
    twice.promise(0, 5, 5, [(1, 7)])
    for _ in range(2):
        twice.acknowledge([(0, 1, 7)])
    assert twice.processed == 1


def test_a_stage_waits_for_earlier_stages_and_not_for_later_ones() -> None:
    tracker = Tracker(2, 1, 1)
    tracker.promise(0, 9, 9, [(3, 1), (6, 2)])
    tracker.acknowledge([(0, 3, 1), (1, 3, 5)])
    assert tracker.frontiers() == (6, 3, 3)
    tracker.acknowledge([(1, 3, 5), (2, 3, 8)])
    assert tracker.frontiers() == (6, 6, 3)
    assert tracker.oldest() == (3, 2)
    tracker.acknowledge([(2, 3, 8)])
    assert tracker.frontiers() == (6, 6, 6)


def test_outputs_wait_until_their_input_is_durable_and_stages_do_not() -> None:
    tracker = Tracker(1, 2, 1)
    tracker.promise(0, 9, 4, [])
    tracker.promise(1, 8, INFINITY, [])
    assert tracker.frontiers() == (8, 4)
    tracker.promise(0, 9, 9, [])
    assert tracker.frontiers() == (8, 8)


def test_nothing_is_final_before_every_front_has_promised() -> None:
    tracker = Tracker(1, 2, 1)
    tracker.promise(0, INFINITY, INFINITY, [])
    assert tracker.frontiers() == (0, 0)
    tracker.promise(1, 4, INFINITY, [])
    assert tracker.frontiers() == (4, 4)


def test_promises_and_deliveries_that_come_again_or_late_change_nothing() -> None:
    tracker = Tracker(1, 1, 2)
    tracker.promise(0, 9, 9, [])
    tracker.promise(0, 4, 4, [])
    assert tracker.processed == 9
    tracker.deliver(0, 7)
    tracker.deliver(1, 6)
    tracker.deliver(0, 2)
    assert tracker.delivered == 6


def test_delivered_waits_for_every_node_and_is_never_ahead_of_processed() -> None:
    tracker = Tracker(1, 1, 2)
    tracker.promise(0, 9, 9, [(5, 1)])
    tracker.deliver(0, INFINITY)
    assert tracker.delivered == 0
    tracker.deliver(1, INFINITY)
    assert (tracker.processed, tracker.delivered) == (5, 5)
    tracker.acknowledge([(0, 5, 1)])
    assert tracker.delivered == 9


def test_it_begins_where_a_replay_begins() -> None:
    tracker = Tracker(2, 2, 1, start=40)
    assert tracker.frontiers() == (40, 40, 40)
    tracker.promise(0, 41, INFINITY, [(40, 3)])
    tracker.promise(1, 50, INFINITY, [])
    assert tracker.frontiers() == (40, 40, 40)
    tracker.acknowledge([(0, 40, 3)])
    assert tracker.frontiers() == (41, 41, 41)


def test_an_idle_front_is_asked_once_for_each_time_that_it_is_needed_up_to() -> None:
    tracker = Tracker(1, 2, 1)
    assert tracker.to_ask() == []
    tracker.promise(0, 8, 8, [(7, 1)])
    assert tracker.to_ask() == [(1, 8)]
    assert tracker.to_ask() == []
    tracker.promise(0, 9, 9, [(8, 2)])
    assert tracker.to_ask() == [(1, 9)]
    tracker.promise(1, 9, 9, [])
    assert tracker.to_ask() == []


@pytest.mark.parametrize("others", [[8, 5], [8, 5, 3]])
def test_a_front_that_has_ended_is_not_what_others_have_to_catch_up_with(others: list[int]) -> None:
    tracker = Tracker(1, len(others) + 1, 1)
    tracker.promise(len(others), INFINITY, INFINITY, [])
    for front, time in enumerate(others):
        tracker.promise(front, time, time, [])
    asked = tracker.to_ask()
    assert asked == [(front, max(others)) for front in range(1, len(others))]


def test_a_time_that_comes_back_to_life_holds_the_frontier_again() -> None:
    """A later frame of a root may be told of when the cell has been zero for a moment."""
    tracker = Tracker(1, 1, 1)
    tracker.promise(0, 2, 9, [(1, 7)])
    tracker.acknowledge([(0, 1, 7)])
    tracker.acknowledge([(0, 3, 5)])  # the receiver is faster than the front's promise
    tracker.promise(0, 4, 9, [])
    assert tracker.frontiers() == (3, 3)
    tracker.promise(0, 6, 9, [(3, 5)])
    assert tracker.frontiers() == (6, 6)
    tracker.acknowledge([(0, 6, 4)])
    tracker.promise(0, 7, 9, [(6, 4)])
    assert tracker.frontiers() == (7, 7)
