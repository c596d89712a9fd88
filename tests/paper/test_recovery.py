"""Section V-B: how processing restarts after a failure."""

from __future__ import annotations

from driftline.engine.snapshots.jobs import LoadSnapshot
from driftline.engine.wire.messages import FetchLast, Frame, Hello, LastBundle, Recover, Start
from tests.paper.operations import Records, concatenation, reference
from tests.stepped_cluster import SteppedCluster


def recovering() -> tuple[SteppedCluster, int]:
    """Return a room in which a node has just failed, and the number of messages before."""
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    cluster = SteppedCluster(concatenation(), [left, []], seed=9, window=2)
    cluster.run(
        lambda: (
            cluster.state is not None and bool(cluster.state.snapshots) and len(cluster.values) > 5
        )
    )
    before = len(cluster.messages)
    cluster.crash("node-0")
    return cluster, before


def test_the_steps_of_a_restart() -> None:
    """Section V-B: "Coordinator broadcasts a notification to begin the recovery process. Operations
    receive these notifications and fetch their states from state storage. [...] Barriers request
    the last released bundle from data consumers and send acknowledgments that they are ready [...]
    When the Coordinator receives all acknowledgments from groupings and barriers, it requests data
    producer to replay starting from the t(a) of the last snapshot."
    """
    cluster, before = recovering()
    jobs = len(cluster.durable_jobs)
    cluster.run(lambda: bool(cluster.messages_of(Start, before)))
    assert cluster.state is not None
    snapshot = cluster.state.snapshots[0]
    ready: list[int] = []
    for node in cluster.nodes:
        notified = next(w for w, _, to, _ in cluster.messages_of(Recover, before) if to == node)
        asked = next(
            w for w, sender, _, _ in cluster.messages_of(FetchLast, before) if sender == node
        )
        answered = next(w for w, _, to, _ in cluster.messages_of(LastBundle, before) if to == node)
        ready.append(
            next(
                w
                for w, sender, _, m in cluster.messages_of(Hello, before)
                if sender == node and isinstance(m, Hello) and m.ready and m.incarnation == 2
            )
        )
        assert notified < asked < answered < ready[-1]
        loads = [job for who, job in cluster.durable_jobs[jobs:] if who == node]
        assert LoadSnapshot(snapshot.number, snapshot.incarnation) in loads
    when, _, _, start = cluster.messages_of(Start, before)[0]
    assert isinstance(start, Start)
    assert when > max(ready)
    assert (start.incarnation, start.offset) == (2, snapshot.offsets[0])


def test_processing_does_not_restart_until_all_operations_obtain_consistent_states() -> None:
    """Section V-B: "Processing does not restart until all operations obtain consistent states.
    [...] Therefore, the elements are not lost."
    """
    cluster, before = recovering()
    cluster.held_disks.add("node-0")
    for _ in range(1200):
        cluster.step()
    assert cluster.messages_of(Start, before) == []
    cluster.held_disks.clear()
    cluster.run(cluster.stopped)
    started = cluster.messages_of(Start, before)[0][0]
    frames = [
        when
        for when, (_, _, header, message) in enumerate(cluster.messages)
        if isinstance(message, Frame) and header.incarnation == 2
    ]
    assert min(frames) > started
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    assert cluster.values == reference(concatenation(), left, [])


def test_duplicates_are_not_produced() -> None:
    """Section V-B: "Duplicates are not produced because, at the moment when Processing is
    restarted, it is ensured that Barrier has obtained the last released t(x) and can filter out
    extra items."
    """
    cluster, _ = recovering()
    delivered = len(cluster.values)
    cluster.run(cluster.has(delivered + 3))
    cluster.crash("node-1")
    cluster.run(cluster.stopped)
    labels = [item.label for item in cluster.consumer.items]
    assert len(set(labels)) == len(labels) == 39


def test_a_lost_packet_restarts_from_the_last_snapshot() -> None:
    """Section V-B: "In the case of packet loss or node failure, a failure detector mechanism can
    enforce the Coordinator to begin computations restart from the last successful snapshot."
    """
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    for sender, to in (("front-0", "node"), ("master", "node"), ("node", "master")):
        cluster = SteppedCluster(concatenation(), [left, []], seed=11, window=2)
        cluster.run(cluster.has(5))
        lost = 0
        while not lost:
            cluster.step()
            for channel in list(cluster.channels):
                if channel[0].startswith(sender) and channel[1].startswith(to):
                    lost += cluster.drop_channel(*channel)
        cluster.run(cluster.stopped)
        assert cluster.values == reference(concatenation(), left, [])
        assert not cluster.master.coordinator.error
