"""A snapshot is whole or not at all, and one is taken at a time."""

from __future__ import annotations

from driftline.coordinator.coordinator import Phase
from driftline.coordinator.registry import SnapshotRecord
from driftline.coordinator.snapshots import HURRIED_EVERY_S
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Committed, Prepare, Prepared, PrepareFailed
from tests.coordinator.cluster import INTERVAL, Cluster


def test_the_steps_of_a_snapshot_come_in_order() -> None:
    cluster = Cluster(fronts=2).run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    assert cluster.sent() == [(node, Prepare(1, 50)) for node in cluster.nodes]
    cluster.coordinator.prepared("node-0", Prepared(1, 0))
    cluster.coordinator.prepared("node-0", Prepared(1, 0))
    assert cluster.coordinator.jobs == []  # one part is not durable yet
    cluster.coordinator.prepared("node-1", Prepared(1, 0))
    assert cluster.sent() == []  # not committed before it is written
    [state] = cluster.write()
    assert state.snapshots == (SnapshotRecord(1, 50, (50, 50), 1),)
    assert cluster.coordinator.snapshots.committed == 1
    names = [name for name, message in cluster.sent() if isinstance(message, Committed)]
    assert names == ["node-0", "node-1", "front-0", "front-1"]


def test_inputs_are_trimmed_only_below_the_oldest_snapshot_that_is_kept() -> None:
    """The last two are: a damaged one falls back to the one before."""
    cluster = Cluster().run()
    trims = []
    offsets = []
    for number, time in ((1, 50), (2, 60), (3, 70)):
        cluster.pass_time(INTERVAL + 0.1)
        cluster.coordinator.consider_snapshot(time)
        for node in cluster.nodes:
            cluster.coordinator.prepared(node, Prepared(number, 0))
        cluster.write()
        sent = cluster.sent()
        told = [m for name, m in sent if name == "front-0" and isinstance(m, Committed)]
        trims += [message.trim for message in told]
        offsets += [message.offset for message in told]
    assert [record.number for record in cluster.written.snapshots] == [3, 2]
    assert max(trims) <= 60
    assert trims[-1] == 60
    assert offsets == [50, 60, 70], "from where each snapshot goes on"


def test_a_snapshot_is_taken_only_when_it_is_time_and_there_is_something_new() -> None:
    cluster = Cluster().run()
    cluster.coordinator.consider_snapshot(50)
    assert cluster.sent() == []
    cluster.snapshot(1, 50)
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    assert cluster.sent() == []
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(INFINITY)
    assert cluster.sent() == []  # it is over: nothing to come back to
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(51)
    assert {type(message) for _, message in cluster.sent()} == {Prepare}


def test_two_snapshots_are_never_under_way_together() -> None:
    cluster = Cluster().run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    cluster.sent()
    cluster.pass_time(3 * INTERVAL)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == []
    cluster.coordinator.prepared("node-0", Prepared(1, 0))
    cluster.coordinator.prepare_failed("node-1", PrepareFailed(1, "disk full"))
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == [], "the disk gets a moment"
    cluster.pass_time(HURRIED_EVERY_S)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == [(node, Prepare(2, 60)) for node in cluster.nodes]


def test_a_snapshot_with_a_part_that_failed_is_given_up_when_all_have_answered() -> None:
    cluster = Cluster().run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    cluster.sent()
    cluster.coordinator.prepare_failed("node-0", PrepareFailed(1, "disk full"))
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == []
    cluster.coordinator.prepared("node-1", Prepared(1, 0))
    assert cluster.write() == []
    cluster.pass_time(HURRIED_EVERY_S)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == [(node, Prepare(2, 60)) for node in cluster.nodes]
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(2, 0))
    cluster.write()
    assert cluster.written.snapshots == (SnapshotRecord(2, 60, (60,), 1),)


def test_a_snapshot_may_take_as_long_as_it_takes() -> None:
    """A marker that is lost is a gap in a channel: who misses it says so."""
    cluster = Cluster().run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    cluster.pass_time(3600.0)
    assert cluster.phase() is Phase.RUNNING
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(1, 0))
    assert [record.number for record in cluster.write()[0].snapshots] == [1]
