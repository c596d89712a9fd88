"""Reported progress: as correct as a local tracker's, and never decreasing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driftline.acker.tracker import ReportedProgress, Tracker
from driftline.engine.labels import INFINITY

NODES, FRONTS = 3, 2

TURN = st.tuples(st.integers(0, NODES - 1), st.integers(0, FRONTS - 1), st.integers(1, 5))


def told(node: int, tracker: Tracker, delivered: int, gathered: ReportedProgress) -> None:
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
        for said in unheard[node][:heard]:
            trackers[node].promise(*said, durable=INFINITY)
        del unheard[node][:heard]
        told(node, trackers[node], trackers[node].processed, gathered)
        assert gathered.processed == max(t.processed for t in trackers) <= everything.processed
        assert gathered.delivered == min(t.processed for t in trackers)
        assert before <= gathered.processed
        before = gathered.processed
    for node, waiting in enumerate(unheard):
        for said in waiting:
            trackers[node].promise(*said, durable=INFINITY)
        told(node, trackers[node], trackers[node].processed, gathered)
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
