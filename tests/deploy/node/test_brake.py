"""A node whose consumer, or whose disk, is slow holds its input back, and nothing is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from driftline.barrier.ordered import OrderedBarrier
from driftline.deploy.node.node import Node
from driftline.deploy.node.pace import TELL_EVERY_S, Brake
from driftline.deploy.parties.front import Front
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.context import Context
from driftline.engine.policy import POLICIES
from driftline.engine.reference import interpret
from driftline.engine.state.managed import MapState, ReducingState
from driftline.engine.wire.messages import AskSnapshot
from tests.room import Room

RECORDS = 250
WAITING = 4000
"""Bytes of outputs that may wait; a record makes more than 100."""


def flow() -> Flow:
    made = Flow("sums")
    total = ReducingState[int]("total", lambda a, b: a + b)

    def add(number: int, total: ReducingState[int]) -> str:
        total.add(number)
        return f"{number}".rjust(100)

    made.source("numbers").key_by(lambda number: number % 5).scan(add, total).sink()
    return made


def without_state() -> Flow:
    made = Flow("copies")
    made.source("numbers").map(str).sink()
    return made


def places() -> Flow:
    """Each record changes many slots of a state."""
    made = Flow("places")

    def put(context: Context, number: int, places: MapState[str, int]) -> Iterator[int]:
        for place in range(20):
            places[f"{number} {place}".rjust(50)] = number
        yield number

    made.source("numbers").key_by(lambda number: number % 5).process(
        put, MapState[str, int]("at")
    ).sink()
    return made


def room_of(mode: str, made: Flow | None = None, **options: float) -> Room:
    inputs: list[list[tuple[int, object]]] = [[(time, time) for time in range(1, RECORDS + 1)]]
    return Room(
        made or flow(), inputs, mode=mode, window=6, waiting_bytes=WAITING,
        interval=options.get("interval", 0.3),
    )  # fmt: skip


def taken(room: Room) -> int:
    front = room.parties["front-0"]
    assert isinstance(front, Front)
    return front.taken


def nodes(room: Room) -> list[Node]:
    return [party for party in room.parties.values() if isinstance(party, Node)]


def right(room: Room, made: Flow | None = None) -> bool:
    expected = [item.value for item in interpret(made or flow(), room.inputs)]
    return sorted(map(str, room.values)) == sorted(map(str, expected))


@pytest.mark.parametrize("mode", POLICIES)
def test_a_consumer_that_does_not_answer_holds_the_input_back(mode: str) -> None:
    room = room_of(mode)
    room.run(room.has(5))
    room.silent.add("consumer")
    most = 0
    for _ in range(6000):  # far longer than work may stand still before it counts as lost
        room.step()
        most = max(most, *(node.barrier.waiting_bytes for node in nodes(room)))
    held = taken(room)
    assert held < RECORDS - 20
    assert most < 2 * WAITING
    assert room.master.coordinator.recoveries == 0
    room.silent.clear()
    room.run(room.stopped, 100_000)
    assert right(room)
    assert room.master.coordinator.recoveries == 0


def test_an_epoch_that_is_open_for_long_is_ended_before_it_is_due() -> None:
    room = room_of("two-phase", interval=1e6)
    room.run(room.has(RECORDS // 2), 100_000)
    assert room.heard(AskSnapshot)
    assert room.master.coordinator.snapshots.committed > 1


def test_without_snapshots_a_node_keeps_no_checksums_of_what_is_delivered() -> None:
    room = room_of("exactly-once", without_state(), interval=1e6)
    most = 0
    while not room.stopped():
        room.step()
        barriers = [node.barrier for node in nodes(room) if node.running]
        most = max([most, *(len(b.history) for b in barriers if isinstance(b, OrderedBarrier))])
    assert right(room, without_state())
    assert room.master.coordinator.snapshots.committed == 1, "the last one"
    assert 1 < most < RECORDS / 5


def test_a_disk_that_does_not_answer_holds_an_open_epoch_back() -> None:
    room = room_of("two-phase")
    room.run(room.has(5))
    room.held_disks.add("node-1")
    most = 0
    for _ in range(6000):
        room.step()
        most = max(most, *(node.assembly.unsaved_bytes for node in nodes(room)))
    assert taken(room) < RECORDS - 20
    assert most < 4 * WAITING
    room.held_disks.clear()
    room.run(room.stopped, 100_000)
    assert right(room)
    assert room.master.coordinator.recoveries == 0


def test_a_disk_that_does_not_answer_holds_changes_back() -> None:
    room = room_of("exactly-once", places())
    room.run(room.has(5))
    room.held_disks.add("node-1")
    most = 0
    for _ in range(8000):
        room.step()
        most = max(most, *(node.assembly.unsaved_bytes for node in nodes(room)))
    assert WAITING < most < 4 * WAITING
    assert taken(room) < RECORDS - 20
    room.held_disks.clear()
    room.run(room.stopped, 100_000)
    assert right(room, places())
    assert room.master.coordinator.recoveries == 0


def test_the_brake_is_told_of_but_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "driftline")
    brake = Brake("node-7", waiting_bytes=1_000_000)
    now = 5.0
    assert not brake.look(1_000_000, 0, now)
    assert brake.look(3_000_000, 0, now)
    assert brake.look(600_000, 0, now), "it goes on only when half of it is gone"
    assert not brake.look(500_000, 0, now)
    assert brake.look(3_000_000, 0, now + TELL_EVERY_S / 2)
    assert not brake.look(0, 0, now + TELL_EVERY_S / 2)
    assert caplog.messages == [
        "node-7 holds its input back: the consumer is slow, 3 MB wait for it",
        "node-7 takes input again",
    ]
    assert brake.look(0, 9_000_000, now + TELL_EVERY_S)
    assert "snapshots are slow, 9 MB wait" in caplog.messages[-1]
