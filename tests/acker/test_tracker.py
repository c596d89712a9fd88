"""Tracker: the frontier never passes frames in flight, never decreases, and reaches the end."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from driftline.acker.tracker import Tracker
from driftline.engine.labels import INFINITY

STAGES = 3
"""Stages of the flow; one more stage stands for outputs that are held back."""

Cell = tuple[int, int, int]


@dataclass(frozen=True)
class Flying:
    """A frame or token that is sent but not processed."""

    stage: int
    time: int
    id: int
    by: int
    """The node that processes it."""
    covers: tuple[int, int, int] | None = None
    """(front, since, until) of a front's frame."""


@dataclass
class TrackerModel:
    """Plain twin of the tracker: fronts and nodes, with the set of all frames in flight.

    Their messages reach the tracker late, in order per sender only.
    """

    chance: Random
    fronts: int
    nodes: int
    tracker: Tracker
    start: int
    flying: set[Flying] = field(default_factory=set)
    next: list[int] = field(init=False)
    covered: list[int] = field(init=False)
    durable: list[int] = field(init=False)
    messages: dict[str, list[tuple[object, ...]]] = field(init=False)

    def __post_init__(self) -> None:
        self.next = [self.start] * self.fronts
        self.covered = [0] * self.fronts
        self.durable = [self.start] * self.fronts
        tellers = [f"front-{i}" for i in range(self.fronts)]
        self.messages = {name: [] for name in tellers + [f"node-{i}" for i in range(self.nodes)]}

    def send(self, stage: int, time: int, covers: tuple[int, int, int] | None = None) -> int:
        node = self.chance.randrange(self.nodes)
        frame = Flying(stage, time, self.chance.getrandbits(63), node, covers)
        self.flying.add(frame)
        return frame.id

    def front_turn(self) -> None:
        """Let a front send a few roots. A frame covers times up to the next; a promise the rest."""
        front = self.chance.randrange(self.fronts)
        if self.next[front] >= INFINITY:
            return
        times = []
        for _ in range(self.chance.randrange(3)):
            times.append(self.next[front] + self.chance.randrange(3))
            self.next[front] = times[-1] + 1 + self.chance.randrange(3)
        if self.chance.random() < 0.1:
            self.next[front] = INFINITY
        for time, until in zip(times, [*times[1:], self.next[front]], strict=bool(times)):
            self.send(0, time, (front, self.covered[front], until))
            self.covered[front] = until
        self.durable[front] = self.chance.randint(self.durable[front], self.next[front])
        self.promise(front)

    def promise(self, front: int) -> None:
        """Let a front promise the times that no frame covers; it reports its position anyway."""
        promise = (front, self.covered[front], self.next[front], self.durable[front])
        self.covered[front] = self.next[front]
        self.messages[f"front-{front}"].append(promise)

    def node_turn(self) -> None:
        """Let a node process some of its frames, and acknowledge all of them in one batch."""
        node = self.chance.randrange(self.nodes)
        mine = sorted((f for f in self.flying if f.by == node), key=lambda f: f.id)
        cells: dict[tuple[int, int], int] = {}
        covered = []
        for frame in mine[: self.chance.randint(0, 4)]:
            self.flying.remove(frame)
            if frame.covers is not None:
                covered.append(frame.covers)
            else:
                cells[frame.stage, frame.time] = cells.get((frame.stage, frame.time), 0) ^ frame.id
            for stage in range(frame.stage + 1, STAGES + 1):
                for _ in range(self.chance.choice([0, 0, 1, 2]) if len(self.flying) < 40 else 0):
                    made = self.send(stage, frame.time)
                    cells[stage, frame.time] = cells.get((stage, frame.time), 0) ^ made
        if cells or covered:
            batch = [(stage, time, ids) for (stage, time), ids in cells.items()]
            self.messages[f"node-{node}"].append((batch, covered))

    def tell(self) -> None:
        """Deliver the next message of a random sender to the tracker."""
        teller = self.chance.choice(sorted(self.messages))
        if not self.messages[teller]:
            return
        message = self.messages[teller].pop(0)
        if teller.startswith("front"):
            self.tracker.promise(*message)  # type: ignore[arg-type]
        else:
            batch, covered = message
            self.tracker.acknowledge(batch, covered)  # type: ignore[arg-type]

    def bound(self, stage: int) -> int:
        """Return the largest correct frontier of a stage."""
        flying = [frame.time for frame in self.flying if frame.stage <= stage]
        return min([*self.next, *flying])

    def finish(self) -> None:
        """End all fronts, process all frames, and deliver all messages."""
        for front in range(self.fronts):
            self.next[front] = self.durable[front] = INFINITY
            self.promise(front)
        while self.flying or any(self.messages.values()):
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
def test_frontier_is_always_correct_and_reaches_the_end(
    seed: int, fronts: int, nodes: int, start: int, turns: int
) -> None:
    chance = Random(seed)
    world = TrackerModel(chance, fronts, nodes, Tracker(STAGES, fronts, nodes, start), start)
    tracker = world.tracker
    last: tuple[int, ...] = (start,) * (STAGES + 1)
    moved = False
    for _ in range(turns):
        chance.choice([world.front_turn, world.node_turn, world.tell, world.tell])()
        found = tracker.frontiers()
        assert len(found) == STAGES + 1
        for stage, frontier in enumerate(found):
            assert frontier <= world.bound(stage), f"passes something in flight in stage {stage}"
            assert frontier >= last[stage], "decreases"
        assert found[-1] <= min(world.durable), "passes an input that may be lost"
        assert list(found) == sorted(found, reverse=True), "a later stage is ahead of an earlier"
        moved = moved or found[-1] > start
        last = found
    event(f"moved before the end: {moved}")
    world.finish()
    assert tracker.frontiers() == (INFINITY,) * (STAGES + 1)
    assert tracker.oldest() is None


@given(st.integers(0, 2**32))
def test_frontier_advances_fully_after_all_reports(seed: int) -> None:
    """Liveness: only frames in flight, promises and durability hold the frontier back."""
    chance = Random(seed)
    world = TrackerModel(chance, 2, 2, Tracker(STAGES, 2, 2), 0)
    for _ in range(60):
        chance.choice([world.front_turn, world.node_turn])()
    while any(world.messages.values()):
        world.tell()
    # A front's frame holds back all times that it covers, also those before its first element.
    since = [f.covers[1] for f in world.flying if f.covers is not None]
    bounds = [min([world.bound(stage), *since]) for stage in range(STAGES + 1)]
    bounds[-1] = min(bounds[-1], *world.durable)
    assert list(world.tracker.frontiers()) == bounds
    oldest = min(((f.time, f.stage) for f in world.flying if f.stage), default=None)
    first = min((f.time for f in world.flying if not f.stage), default=INFINITY)
    found = world.tracker.oldest()
    assert found == oldest or (found is not None and found[0] <= first and found[1] == 0)


Batch = tuple[list[Cell], list[tuple[int, int, int]]]


@given(st.permutations([([(1, 1, 8 ^ 9)], [(0, 0, 5)]), ([(1, 1, 8)], []), ([(1, 1, 9)], [])]))
def test_batches_may_arrive_in_any_order(batches: list[Batch]) -> None:
    tracker = Tracker(2, 1, 1)
    tracker.promise(0, 5, 5, 5)
    for cells, covered in batches:
        assert tracker.frontiers()[-1] <= 1
        tracker.acknowledge(cells, covered)
    assert tracker.frontiers() == (5, 5, 5)


@given(st.permutations([(0, 0, 3), (0, 3, 4), (0, 4, 9), (0, 9, INFINITY)]))
def test_frontier_stops_at_the_first_gap_between_intervals(
    intervals: list[tuple[int, int, int]],
) -> None:
    tracker = Tracker(1, 1, 1)
    tracker.promise(0, 0, 0, INFINITY)
    done: set[int] = set()
    for front, since, until in intervals:
        tracker.acknowledge([], [(front, since, until)])
        done.add(since)
        gap = next((start for start in (0, 3, 4, 9) if start not in done), INFINITY)
        assert tracker.frontiers() == (gap, gap)


def test_only_the_output_frontier_waits_for_durable_input() -> None:
    tracker = Tracker(1, 2, 1)
    tracker.promise(0, 0, 9, 4)
    tracker.promise(1, 0, 8, INFINITY)
    assert tracker.frontiers() == (8, 4)
    assert tracker.waits_for_logs
    tracker.promise(0, 9, 9, 9)
    assert tracker.frontiers() == (8, 8)
    assert not tracker.waits_for_logs


def test_repeated_and_late_promises_and_deliveries_are_ignored() -> None:
    tracker = Tracker(1, 1, 2)
    tracker.promise(0, 0, 9, 9)
    tracker.promise(0, 0, 4, 4)
    assert tracker.processed == 9
    tracker.deliver(0, 7)
    tracker.deliver(1, 6)
    tracker.deliver(0, 2)
    assert tracker.delivered == 6


def test_delivered_waits_for_every_node_and_is_never_ahead_of_processed() -> None:
    tracker = Tracker(1, 1, 2)
    tracker.promise(0, 0, 5, 9)
    tracker.deliver(0, INFINITY)
    assert tracker.delivered == 0
    tracker.deliver(1, INFINITY)
    assert (tracker.processed, tracker.delivered) == (5, 5)
    tracker.acknowledge([], [(0, 5, 9)])
    assert tracker.delivered == 9


def test_lagging_front_is_asked_once_for_each_needed_time() -> None:
    tracker = Tracker(1, 2, 1)
    assert tracker.take_lagging_fronts() == []
    tracker.acknowledge([], [(0, 0, 8)])
    assert tracker.take_lagging_fronts() == [], "it may not have begun"
    tracker.promise(1, 0, 1, 1)
    assert tracker.take_lagging_fronts() == [(1, 8)]
    assert tracker.take_lagging_fronts() == []
    tracker.acknowledge([], [(0, 8, 9)])
    assert tracker.take_lagging_fronts() == [(1, 9)]
    tracker.promise(1, 1, 9, 9)
    assert tracker.take_lagging_fronts() == []


@pytest.mark.parametrize("others", [[8, 5], [8, 5, 3]])
def test_lagging_fronts_need_not_catch_up_with_an_ended_front(others: list[int]) -> None:
    tracker = Tracker(1, len(others) + 1, 1)
    tracker.promise(len(others), 0, INFINITY, INFINITY)
    for front, time in enumerate(others):
        tracker.promise(front, 0, time, time)
    asked = tracker.take_lagging_fronts()
    assert asked == [(front, max(others)) for front in range(1, len(others))]


def test_lagging_front_is_asked_for_times_that_an_ended_front_has_sent() -> None:
    tracker = Tracker(1, 2, 1)
    tracker.promise(1, 0, 1, 1)
    tracker.acknowledge([], [(0, 0, 25)])
    tracker.promise(0, 25, INFINITY, INFINITY)
    assert tracker.frontiers() == (1, 1)
    assert tracker.take_lagging_fronts() == [(1, 25)]
    tracker.promise(1, 1, 25, 25)
    assert tracker.frontiers() == (25, 25)
    assert tracker.take_lagging_fronts() == []
