"""Section IV-A: MillWheel's strong productions."""

from __future__ import annotations

import pytest

from driftline.engine.wire.messages import Frame
from tests.paper.operations import LEFT, RIGHT, Records, concatenation
from tests.stepped_cluster import SteppedCluster


def test_each_element_is_saved_before_it_may_influence_others() -> None:
    """Section IV-A: "each streaming element is saved before it may influence other elements or
    operation states."
    """
    records: Records = [(time, f"r{time}") for time in range(1, 40)]
    cluster = SteppedCluster(concatenation(), [records, []], mode="strong-productions", window=20)
    cluster.held_disks.update(cluster.nodes)
    for name in cluster.nodes:  # except the load of the initial state
        cluster.run(lambda name=name: bool(cluster.jobs.get(name)))  # type: ignore[misc]
        cluster._execute_job(name)
    cluster.run(lambda: all(cluster.jobs[name] for name in cluster.nodes))
    for _ in range(1000):
        cluster.step()
    assert [m for _, sender, _, m in cluster.messages_of(Frame) if sender in cluster.nodes] == []
    assert cluster.values == []
    assert cluster.master.tracker is not None
    assert cluster.master.tracker.processed <= 1
    cluster.held_disks.clear()
    cluster.run(cluster.stopped)
    assert len(cluster.values) == 39


def test_of_many_possible_results_only_one_is_computed_and_saved() -> None:
    """Section IV-A: "Strong productions method guarantees that even if many possible results of a
    non-commutative operation may be obtained due to races, only one of them is computed and saved."
    """
    found = set()
    for seed in range(20):
        cluster = SteppedCluster(
            concatenation(), [LEFT, RIGHT], seed, mode="strong-productions", interval=99.0
        )
        for count in (1, 2):
            cluster.run(cluster.has(count))
            for node in cluster.nodes:
                cluster.crash(node)
        cluster.run(cluster.stopped)
        assert not cluster.master.coordinator.error
        shortest, longer, longest = map(str, cluster.values)
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
        cluster = SteppedCluster(
            concatenation(), [left, right], seed, mode="strong-productions", window=3
        )
        cluster.run(cluster.has(count))
        cluster.crash(victim)
        cluster.run(cluster.stopped)
        assert not cluster.master.coordinator.error
        assert len(cluster.values) == len(wanted)
        longest = max(map(str, cluster.values), key=len)
        assert sorted(f"{word} " for word in longest.split()) == wanted
        assert all(longest.startswith(str(value)) for value in cluster.values)
        ids = [m.id for _, who, _, m in cluster.messages_of(Frame) if who in cluster.nodes]  # type: ignore[attr-defined]
        frames = list(filter(None, ids))
        again += len(frames) - len(set(frames))
    assert again or victim == "consumer", "no frame was sent again"
