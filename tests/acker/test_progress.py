"""Reported progress, and trackers of flows with timers."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from driftline.acker.tracker import ReportedProgress, Tracker
from driftline.engine.labels import INFINITY

NODES, FRONTS = 3, 2

TURN = st.tuples(st.integers(0, NODES - 1), st.integers(0, FRONTS - 1), st.integers(1, 5))


def report_progress(
    node: int, tracker: Tracker, delivered: int, gathered: ReportedProgress
) -> None:
    oldest, waits = tracker.oldest() or (), tracker.waits_for_logs
    gathered.record_report(node, tracker.processed, delivered, tracker.reached, oldest, waits)


@given(st.lists(TURN, max_size=30), st.data())
def test_reported_progress_is_that_of_the_most_advanced_node(
    turns: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Each node receives all promises in order, some later than others."""
    trackers = [Tracker(1, FRONTS, NODES) for _ in range(NODES)]
    everything = Tracker(1, FRONTS, NODES)
    gathered = ReportedProgress(NODES)
    next_times = [0] * FRONTS
    unheard: list[list[tuple[int, int, int]]] = [[] for _ in range(NODES)]
    before = 0
    for node, front, step in turns:
        since, until = next_times[front], next_times[front] + step
        next_times[front] = until
        everything.promise(front, since, until, INFINITY)
        for waiting in unheard:
            waiting.append((front, since, until))
        heard = data.draw(st.integers(0, len(unheard[node])))
        for promised in unheard[node][:heard]:
            trackers[node].promise(*promised, durable=INFINITY)
        del unheard[node][:heard]
        report_progress(node, trackers[node], trackers[node].processed, gathered)
        assert gathered.processed == max(t.processed for t in trackers) <= everything.processed
        assert gathered.delivered == min(t.processed for t in trackers)
        assert before <= gathered.processed
        before = gathered.processed
    for node, waiting in enumerate(unheard):
        for promised in waiting:
            trackers[node].promise(*promised, durable=INFINITY)
        report_progress(node, trackers[node], trackers[node].processed, gathered)
    assert gathered.processed == gathered.delivered == everything.processed
    assert gathered.reached == everything.reached


def test_reported_progress_names_the_oldest_unfinished_work() -> None:
    gathered = ReportedProgress(NODES, start=4)
    assert (gathered.processed, gathered.delivered, gathered.oldest()) == (4, 0, None)
    gathered.record_report(0, 9, 9, 9, (), waits=False)
    gathered.record_report(1, 7, 7, 9, (7, 1), waits=False)
    gathered.record_report(2, 9, 5, 9, (8, 0), waits=True)
    assert gathered.oldest() == (7, 1)
    assert gathered.undelivered() == [1, 2]
    assert (gathered.processed, gathered.delivered) == (9, 5)
    assert gathered.waits_for_logs
    gathered.record_report(1, 9, 9, 9, (), waits=False)
    gathered.record_report(2, 9, 9, 9, (), waits=False)
    assert gathered.oldest() is None
    assert not gathered.undelivered()
    assert not gathered.waits_for_logs


STAGES = 4


def test_stage_is_done_once_all_its_waiting_operators_have_covered_it() -> None:
    tracker = Tracker(2, fronts=1, nodes=2, waiting=[1, 1])
    tracker.promise(0, 0, INFINITY, INFINITY)
    tracker.acknowledge([(1, 3, 77)])
    assert tracker.frontiers() == (INFINITY, 0, 0)
    assert tracker.arrived == {1: 3}
    tracker.acknowledge([(1, 3, 77)], covered=[(1, 0, 3)])
    assert (tracker.frontiers(), tracker.arrived) == ((INFINITY, 0, 0), {1: INFINITY})
    tracker.acknowledge([], covered=[(2, 0, 9)])
    assert tracker.frontiers() == (INFINITY, 3, 3)
    tracker.acknowledge([], covered=[(1, 5, INFINITY)])
    assert tracker.frontiers() == (INFINITY, 3, 3), "times 3 and 4 are not covered"
    tracker.acknowledge([], covered=[(1, 3, 5), (2, 9, INFINITY)])
    assert tracker.frontiers() == (INFINITY,) * 3


@given(
    seed=st.integers(0, 2**32),
    stages=st.lists(st.integers(1, STAGES - 1), min_size=1, max_size=4),
    fronts=st.integers(1, 3),
    start=st.sampled_from([0, 7]),
)
def test_frontiers_are_the_minimum_of_cells_and_coverage(
    seed: int, stages: list[int], fronts: int, start: int
) -> None:
    """A twin with plain sets: each event reaches the tracker at once, so both are always equal.

    Operators emit for later stages while they cover, and only up to `arrived`.
    """
    chance = Random(seed)
    tracker = Tracker(STAGES, fronts, 1, start, waiting=stages)
    promised = [start] * fronts
    covered = [start] * len(stages)
    flying: set[tuple[int, int, int]] = set()  # (stage, time, id)
    for front in range(fronts):
        tracker.promise(front, 0, start, INFINITY)

    def send(stage: int, time: int) -> tuple[int, int, int]:
        frame = stage, time, chance.getrandbits(63)
        flying.add(frame)
        return frame

    def read() -> None:
        front = chance.randrange(fronts)
        since = promised[front]
        if since < INFINITY:
            until = INFINITY if chance.random() < 0.1 else since + chance.randint(1, 4)
            times = range(since, min(until, since + 4))
            made = [send(chance.randint(1, STAGES), t) for t in times if chance.random() < 0.6]
            tracker.acknowledge(made, [(front, since, until)])
            promised[front] = until

    def process() -> None:
        if flying:
            done = chance.choice(sorted(flying))
            flying.remove(done)
            after = [
                send(stage, done[1])
                for stage in range(done[0] + 1, STAGES + 1)
                if done[0] not in stages and chance.random() < 0.3
            ]
            tracker.acknowledge([done, *after])

    def cover() -> None:
        which = chance.randrange(len(stages))
        stage, since = stages[which], covered[which]
        until = chance.randint(since, min(tracker.arrived[stage], since + 9))
        if tracker.arrived[stage] == INFINITY and chance.random() < 0.5:
            until = INFINITY
        made = [
            send(chance.randint(stage + 1, STAGES), time)
            for time in range(since, min(until, since + 9))
            if chance.random() < 0.3
        ]
        tracker.acknowledge(made, [(fronts + which, since, until)])
        covered[which] = until

    def check() -> None:
        low, expected, arrived = min(promised), [], {}
        for stage in range(STAGES + 1):
            low = min([low, *(time for s, time, _ in flying if s == stage)])
            if stage in stages:
                arrived[stage] = low
                low = min([low, *(c for c, s in zip(covered, stages, strict=True) if s == stage)])
            expected.append(low)
        assert tracker.frontiers() == tuple(expected)
        assert tracker.arrived == arrived
        assert all(arrived[stage] >= expected[stage] for stage in stages)

    check()
    for _ in range(60):
        chance.choice([read, process, process, cover])()
        check()
    while covered != [INFINITY] * len(stages) or flying or min(promised) < INFINITY:
        chance.choice([read, process, process, process, cover])()
        check()
    assert tracker.frontiers() == (INFINITY,) * (STAGES + 1)
