"""Section V-A1: how the states of operations are saved."""

from __future__ import annotations

from driftline.coordinator.registry import WriteState
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.wire.messages import Committed, Message, Prepare, Prepared, Start
from tests.paper.operations import Records, concatenation, reference
from tests.room import Room


def snapshot_in_progress() -> Room:
    """Return a room in which the coordinator has just decided to take a snapshot."""
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    room = Room(concatenation(), [left, []], seed=5, window=2)
    room.run(lambda: bool(room.heard(Prepare)))
    return room


def test_the_steps_of_a_snapshot() -> None:
    """Section V-A1: "Coordinator decides that snapshot should be taken [...] On the notification,
    nodes asynchronously make operation states recoverable and send to Coordinator the acceptance
    message. When the Coordinator receives all acceptance messages, it saves the information about
    which input elements belong to this snapshot".
    """
    room = snapshot_in_progress()
    room.run(lambda: len(room.heard(Committed)) >= 4)
    prepare = {to: when for when, _, to, m in room.heard(Prepare) if m == Prepare(1, time_of(m))}
    accepted = {node: when for when, node, _, m in room.heard(Prepared) if m == Prepared(1, 0)}
    committed = min(when for when, _, _, _ in room.heard(Committed))
    assert set(prepare) == set(accepted) == set(room.nodes)
    assert all(prepare[node] < accepted[node] < committed for node in room.nodes)
    stored = {
        who: number
        for number, (who, job) in enumerate(room.done)
        if isinstance(job, StoreSnapshot) and job.number == 1
    }
    saved = min(
        number
        for number, (_, job) in enumerate(room.done)
        if isinstance(job, WriteState) and job.state.snapshots
    )
    assert set(stored) == set(room.nodes)
    assert max(stored.values()) < saved


def time_of(message: Message) -> int:
    assert isinstance(message, Prepare)
    return message.time


def test_nothing_is_saved_before_all_have_accepted() -> None:
    """Section V-A1: "When the Coordinator receives all acceptance messages, it saves"."""
    room = snapshot_in_progress()
    room.held_disks.add("node-1")
    for _ in range(500):
        room.step()
    assert room.state is not None
    assert room.state.snapshots == ()
    assert room.heard(Committed) == []
    room.held_disks.clear()
    room.run(lambda: room.state is not None and bool(room.state.snapshots))


def test_barriers_take_no_part_in_a_snapshot() -> None:
    """Section V-A1: "output releasing agents (barriers) do not take part in a distributed
    transaction, because in a deterministic system there is no need to wait until the snapshot is
    taken in order to release output elements consistently."
    """
    room = snapshot_in_progress()
    room.held_disks.update(room.nodes)
    before = len(room.values)
    room.run(room.has(before + 10))
    assert room.state is not None
    assert room.state.snapshots == ()


def test_the_time_of_the_last_input_element_is_sufficient() -> None:
    """Section V-A1: "it is sufficient to save only t(a) of the last input element that affects the
    snapshot": what is loaded is the state as of that time, and the rest is replayed.
    """
    room = snapshot_in_progress()
    room.run(lambda: room.state is not None and len(room.state.snapshots) == 2)
    assert room.state is not None
    before = room.state
    for node in room.nodes:
        room.crash(node)
    room.run(
        lambda: bool(room.heard(Start)) and room.heard(Start)[-1][3] != room.heard(Start)[0][3]
    )
    starts = [message for _, _, _, message in room.heard(Start) if isinstance(message, Start)]
    assert starts[-1].offset >= before.snapshots[0].time > 1
    room.run(room.stopped)
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    assert room.values == reference(concatenation(), left, [])
