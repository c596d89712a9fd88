"""Section IV-A: MillWheel's strong productions."""

from __future__ import annotations

import pytest

from driftline.engine.wire.messages import Frame
from tests.paper.operations import LEFT, RIGHT, Records, concatenation
from tests.room import Room


def test_each_element_is_saved_before_it_may_influence_others() -> None:
    """Section IV-A: "each streaming element is saved before it may influence other elements or
    operation states."
    """
    records: Records = [(time, f"r{time}") for time in range(1, 40)]
    room = Room(concatenation(), [records, []], mode="strong-productions", window=20)
    room.held_disks.update(room.nodes)
    for name in room.nodes:  # except the load of the initial state
        room.run(lambda name=name: bool(room.jobs.get(name)))  # type: ignore[misc]
        room._execute_job(name)
    room.run(lambda: all(room.jobs[name] for name in room.nodes))
    for _ in range(1000):
        room.step()
    assert [m for _, sender, _, m in room.heard(Frame) if sender in room.nodes] == []
    assert room.values == []
    assert room.master.tracker is not None
    assert room.master.tracker.processed <= 1
    room.held_disks.clear()
    room.run(room.stopped)
    assert len(room.values) == 39


def test_of_many_possible_results_only_one_is_computed_and_saved() -> None:
    """Section IV-A: "Strong productions method guarantees that even if many possible results of a
    non-commutative operation may be obtained due to races, only one of them is computed and saved."
    """
    found = set()
    for seed in range(20):
        room = Room(concatenation(), [LEFT, RIGHT], seed, mode="strong-productions", interval=99.0)
        for count in (1, 2):
            room.run(room.has(count))
            for node in room.nodes:
                room.crash(node)
        room.run(room.stopped)
        assert not room.master.coordinator.error
        shortest, longer, longest = map(str, room.values)
        assert longest.startswith(longer)
        assert longer.startswith(shortest)
        assert sorted(longest) == ["a", "b", "c"]
        found.add(longest)
    assert len(found) > 1, "there was no race"


@pytest.mark.parametrize("victim", ["node-0", "node-1", "front-0", "master", "consumer"])
def test_recovery_resends_saved_records_and_drops_processed_ones(victim: str) -> None:
    """Section IV-A: "Recovery function F resends all saved records in case of failure, and each
    operation deduplicates input that has been already processed."
    """
    left: Records = [(time, f"l{time} ") for time in range(1, 12, 2)]
    right: Records = [(time, f"r{time} ") for time in range(2, 12, 3)]
    wanted = sorted(str(payload) for _, payload in left + right)
    again = 0
    for seed, count in enumerate((1, 2, 4, 5, 7, 8)):
        room = Room(concatenation(), [left, right], seed, mode="strong-productions", window=3)
        room.run(room.has(count))
        room.crash(victim)
        room.run(room.stopped)
        assert not room.master.coordinator.error
        assert len(room.values) == len(wanted)
        longest = max(map(str, room.values), key=len)
        assert sorted(f"{word} " for word in longest.split()) == wanted
        assert all(longest.startswith(str(value)) for value in room.values)
        frames = [m.id for _, who, _, m in room.heard(Frame) if who in room.nodes and m.id]  # type: ignore[attr-defined]
        again += len(frames) - len(set(frames))
    assert again or victim == "consumer", "no frame was sent again"
