"""Snapshots are complete or absent, and taken one at a time."""

from __future__ import annotations

from driftline.coordinator.registry import SnapshotRecord
from driftline.coordinator.snapshots import EARLY_INTERVAL_S
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Committed, Prepare, Prepared, PrepareFailed
from tests.coordinator.cluster import ScriptedCluster


def test_inputs_are_trimmed_only_below_the_oldest_snapshot_that_is_kept() -> None:
    """The last two snapshots are kept; a recovery may fall back to the older one."""
    cluster = ScriptedCluster().run()
    trims = []
    offsets = []
    for number, time in ((1, 50), (2, 60), (3, 70)):
        cluster.consider_snapshot(time)
        cluster.prepared(number)
        cluster.write()
        sent = cluster.sent()
        committed = [m for name, m in sent if name == "front-0" and isinstance(m, Committed)]
        trims += [message.trim for message in committed]
        offsets += [message.offset for message in committed]
    assert [record.number for record in cluster.written.snapshots] == [3, 2]
    assert max(trims) <= 60
    assert trims[-1] == 60
    assert offsets == [50, 60, 70], "each kept snapshot can resume from here"


def test_snapshot_is_taken_only_when_due_and_with_progress() -> None:
    cluster = ScriptedCluster().run()
    cluster.coordinator.consider_snapshot(50)
    assert cluster.sent() == []
    cluster.snapshot(1, 50)
    cluster.consider_snapshot(50)
    assert cluster.sent() == []
    cluster.consider_snapshot(INFINITY)
    assert cluster.sent() == []  # the inputs have ended: no snapshot to resume from is needed
    cluster.consider_snapshot(51)
    assert {type(message) for _, message in cluster.sent()} == {Prepare}


def test_snapshot_with_a_failed_part_is_abandoned_after_all_answers() -> None:
    cluster = ScriptedCluster().run()
    cluster.consider_snapshot(50)
    cluster.sent()
    cluster.coordinator.on_prepare_failed("node-0", PrepareFailed(1, "disk full"))
    cluster.consider_snapshot(60)
    assert cluster.sent() == []
    cluster.coordinator.on_prepared("node-1", Prepared(1, 0))
    assert cluster.write() == []
    cluster.pass_time(EARLY_INTERVAL_S)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == [(node, Prepare(2, 60)) for node in cluster.nodes]
    cluster.prepared(2)
    cluster.write()
    assert cluster.written.snapshots == (SnapshotRecord(2, 60, (60,), 1),)


def test_answers_about_another_snapshot_do_not_count() -> None:
    cluster = ScriptedCluster().run()
    cluster.snapshot(1, 50)
    cluster.consider_snapshot(60)
    for node in cluster.nodes:
        cluster.coordinator.on_prepared(node, Prepared(1, 0))
        cluster.coordinator.on_prepare_failed(node, PrepareFailed(1, "late"))
    assert cluster.write() == []
    for node in cluster.nodes:
        cluster.coordinator.on_prepared(node, Prepared(2, 0))
    assert [record.number for record in cluster.write()[0].snapshots] == [2, 1]
