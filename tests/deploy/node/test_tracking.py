"""The master gets the same progress as the nodes, later and in fewer messages."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from driftline.acker.tracker import Tracker
from driftline.deploy.node.component_factory import ComponentFactory
from driftline.deploy.node.tracking import MANY_ROOTS, REPORT_DELAY_MAX_S, Acks, Tracking
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import get_policy
from driftline.engine.wire.messages import Acknowledge, NodeProgress
from driftline.index.flow import inverted_index

PLAN = make_plan(inverted_index())


def tracking(name: str = "exactly-once", ordering: str = "speculative") -> Tracking:
    return ComponentFactory(PLAN, get_policy(name, ordering), 0, (0, 1), int).make_tracking(0, None)


@given(st.integers(0, 2**32))
def test_merged_ack_batches_equal_separate_batches(seed: int) -> None:
    chance = Random(seed)
    one_by_one, joined = Tracker(2, 1, 1), Tracker(2, 1, 1)
    acks = Acks()
    sent: list[tuple[int, int, int]] = []
    for time in range(20):
        batch = Acks()
        batch.cover(0, (time, time + 1), 1)
        for _ in range(chance.randrange(3)):
            sent.append((1, time, chance.getrandbits(63)))
            batch.add(*sent[-1])
        if sent and chance.random() < 0.7:
            batch.add(*sent.pop(chance.randrange(len(sent))))
        cells, covered, _ = batch.take()
        assert not batch
        one_by_one.acknowledge(cells, covered)
        acks.join(cells, covered)
        if chance.random() < 0.3:
            joined.acknowledge(*acks.take()[:2])
            assert joined.frontiers() == one_by_one.frontiers()


def test_report_to_master_is_delayed_but_immediate_under_load() -> None:
    mine = tracking()
    assert mine.send_by == float("inf")
    mine.acks.cover(0, (0, 1), 1)
    mine.end_turn(now=5.0)
    assert mine.send_by == 5.0 + REPORT_DELAY_MAX_S
    mine.acks.cover(0, (1, 9), MANY_ROOTS)
    mine.end_turn(now=5.001)
    assert mine.send_by == 5.001
    assert mine.take_for_master() == NodeProgress(0, 0, 9, (), 1), "no input is durable"
    assert mine.send_by == float("inf")


def test_report_contains_the_largest_delivered_time() -> None:
    mine = tracking()
    mine.deliver(7, roots=1, now=1.0)
    mine.deliver(3, roots=1, now=1.0)
    assert mine.take_for_master().delivered == 7
    mine.deliver(2 * INFINITY, roots=1, now=1.0)
    assert mine.take_for_master().delivered == INFINITY


def test_node_does_not_track_frontiers_without_ordering() -> None:
    """Other nodes send such a node no acknowledgements: its cells would never become zero."""
    mine = tracking("none")
    mine.acks.add(1, 4, 99)
    mine.end_turn(now=0.0)
    assert mine.tracker.oldest() is None
    assert not mine.update_frontiers(0.0)
    assert mine.take_for_master() == Acknowledge(((1, 4, 99),), (), 0)


def test_outputs_are_final_without_the_last_stage_of_others() -> None:
    """Node 1 has acknowledged the first stage up to time 3, but not its own last stage."""
    sent = ((0, 0, 4),)
    mine, buffered = tracking(), tracking(ordering="buffered")
    for node in (mine, buffered):
        node.tracker.promise(0, 0, 0, INFINITY)
        node.tracker.acknowledge(((1, 2, 77),), sent)
        assert node.update_frontiers(0.0)
    assert mine.final_outputs(INFINITY) == 4
    assert mine.final_outputs(3) == 3, "an element of time 3 waits at this node"
    assert buffered.final_outputs(INFINITY) == 2
