"""Section V-B: how processing restarts after a failure."""

from __future__ import annotations

from driftline.engine.snapshots.jobs import LoadSnapshot
from driftline.engine.wire.messages import FetchLast, Frame, Hello, LastBundle, Recover, Start
from tests.paper.operations import Records, concatenation, reference
from tests.room import Room


def recovering() -> tuple[Room, int]:
    """Return a room in which a node has just failed, and the number of messages before."""
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    room = Room(concatenation(), [left, []], seed=9, window=2)
    room.run(lambda: room.state is not None and bool(room.state.snapshots) and len(room.values) > 5)
    before = len(room.said)
    room.crash("node-0")
    return room, before


def test_the_steps_of_a_restart() -> None:
    """Section V-B: "Coordinator broadcasts a notification to begin the recovery process. Operations
    receive these notifications and fetch their states from state storage. [...] Barriers request
    the last released bundle from data consumers and send acknowledgments that they are ready [...]
    When the Coordinator receives all acknowledgments from groupings and barriers, it requests data
    producer to replay starting from the t(a) of the last snapshot."
    """
    room, before = recovering()
    jobs = len(room.done)
    room.run(lambda: bool(room.heard(Start, before)))
    assert room.state is not None
    snapshot = room.state.snapshots[0]
    ready: list[int] = []
    for node in room.nodes:
        notified = next(w for w, _, to, _ in room.heard(Recover, before) if to == node)
        asked = next(w for w, sender, _, _ in room.heard(FetchLast, before) if sender == node)
        answered = next(w for w, _, to, _ in room.heard(LastBundle, before) if to == node)
        ready.append(
            next(
                w
                for w, sender, _, m in room.heard(Hello, before)
                if sender == node and isinstance(m, Hello) and m.ready and m.incarnation == 2
            )
        )
        assert notified < asked < answered < ready[-1]
        loads = [job for who, job in room.done[jobs:] if who == node]
        assert LoadSnapshot(snapshot.number, snapshot.incarnation) in loads
    when, _, _, start = room.heard(Start, before)[0]
    assert isinstance(start, Start)
    assert when > max(ready)
    assert (start.incarnation, start.offset) == (2, snapshot.offsets[0])


def test_processing_does_not_restart_until_all_operations_obtain_consistent_states() -> None:
    """Section V-B: "Processing does not restart until all operations obtain consistent states.
    [...] Therefore, the elements are not lost."
    """
    room, before = recovering()
    room.held_disks.add("node-0")
    for _ in range(1200):
        room.step()
    assert room.heard(Start, before) == []
    room.held_disks.clear()
    room.run(room.stopped)
    started = room.heard(Start, before)[0][0]
    frames = [
        when
        for when, (_, _, header, message) in enumerate(room.said)
        if isinstance(message, Frame) and header.incarnation == 2
    ]
    assert min(frames) > started
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    assert room.values == reference(concatenation(), left, [])


def test_duplicates_are_not_produced() -> None:
    """Section V-B: "Duplicates are not produced because, at the moment when Processing is
    restarted, it is ensured that Barrier has obtained the last released t(x) and can filter out
    extra items."
    """
    room, _ = recovering()
    delivered = len(room.values)
    room.run(room.has(delivered + 3))
    room.crash("node-1")
    room.run(room.stopped)
    labels = [item.label for item in room.consumer.items]
    assert len(set(labels)) == len(labels) == 39


def test_a_lost_packet_restarts_from_the_last_snapshot() -> None:
    """Section V-B: "In the case of packet loss or node failure, a failure detector mechanism can
    enforce the Coordinator to begin computations restart from the last successful snapshot."
    """
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    for sender, to in (("front-0", "node"), ("master", "node"), ("node", "master")):
        room = Room(concatenation(), [left, []], seed=11, window=2)
        room.run(room.has(5))
        lost = 0
        while not lost:
            room.step()
            for channel in list(room.channels):
                if channel[0].startswith(sender) and channel[1].startswith(to):
                    lost += room.lose(*channel)
        room.run(room.stopped)
        assert room.values == reference(concatenation(), left, [])
        assert not room.master.coordinator.error
