"""Section V-A1: how the states of operations are saved."""

from __future__ import annotations

from driftline.coordinator.registry import WriteState
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.wire.messages import Committed, Message, Prepare, Prepared, Start
from tests.paper.operations import Records, concatenation, reference
from tests.stepped_cluster import SteppedCluster


def snapshot_in_progress() -> SteppedCluster:
    """Return a room in which the coordinator has just decided to take a snapshot."""
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    cluster = SteppedCluster(concatenation(), [left, []], seed=5, window=2)
    cluster.run(lambda: bool(cluster.messages_of(Prepare)))
    return cluster


def test_the_steps_of_a_snapshot() -> None:
    """Section V-A1: "Coordinator decides that snapshot should be taken [...] On the notification,
    nodes asynchronously make operation states recoverable and send to Coordinator the acceptance
    message. When the Coordinator receives all acceptance messages, it saves the information about
    which input elements belong to this snapshot".
    """
    cluster = snapshot_in_progress()
    cluster.run(lambda: len(cluster.messages_of(Committed)) >= 4)
    prepare = {
        to: when for when, _, to, m in cluster.messages_of(Prepare) if m == Prepare(1, time_of(m))
    }
    accepted = {
        node: when for when, node, _, m in cluster.messages_of(Prepared) if m == Prepared(1, 0)
    }
    committed = min(when for when, _, _, _ in cluster.messages_of(Committed))
    assert set(prepare) == set(accepted) == set(cluster.nodes)
    assert all(prepare[node] < accepted[node] < committed for node in cluster.nodes)
    stored = {
        who: number
        for number, (who, job) in enumerate(cluster.durable_jobs)
        if isinstance(job, StoreSnapshot) and job.number == 1
    }
    saved = min(
        number
        for number, (_, job) in enumerate(cluster.durable_jobs)
        if isinstance(job, WriteState) and job.state.snapshots
    )
    assert set(stored) == set(cluster.nodes)
    assert max(stored.values()) < saved


def time_of(message: Message) -> int:
    assert isinstance(message, Prepare)
    return message.time


def test_nothing_is_saved_before_all_have_accepted() -> None:
    """Section V-A1: "When the Coordinator receives all acceptance messages, it saves"."""
    cluster = snapshot_in_progress()
    cluster.held_disks.add("node-1")
    for _ in range(500):
        cluster.step()
    assert cluster.state is not None
    assert cluster.state.snapshots == ()
    assert cluster.messages_of(Committed) == []
    cluster.held_disks.clear()
    cluster.run(lambda: cluster.state is not None and bool(cluster.state.snapshots))


def test_barriers_take_no_part_in_a_snapshot() -> None:
    """Section V-A1: "output releasing agents (barriers) do not take part in a distributed
    transaction, because in a deterministic system there is no need to wait until the snapshot is
    taken in order to release output elements consistently."
    """
    cluster = snapshot_in_progress()
    cluster.held_disks.update(cluster.nodes)
    before = len(cluster.values)
    cluster.run(cluster.has(before + 10))
    assert cluster.state is not None
    assert cluster.state.snapshots == ()


def test_the_time_of_the_last_input_element_is_sufficient() -> None:
    """Section V-A1: "it is sufficient to save only t(a) of the last input element that affects the
    snapshot": what is loaded is the state as of that time, and the rest is replayed.
    """
    cluster = snapshot_in_progress()
    cluster.run(lambda: cluster.state is not None and len(cluster.state.snapshots) == 2)
    assert cluster.state is not None
    before = cluster.state
    for node in cluster.nodes:
        cluster.crash(node)
    cluster.run(
        lambda: (
            bool(cluster.messages_of(Start))
            and cluster.messages_of(Start)[-1][3] != cluster.messages_of(Start)[0][3]
        )
    )
    starts = [
        message for _, _, _, message in cluster.messages_of(Start) if isinstance(message, Start)
    ]
    assert starts[-1].offset >= before.snapshots[0].time > 1
    cluster.run(cluster.stopped)
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    assert cluster.values == reference(concatenation(), left, [])
