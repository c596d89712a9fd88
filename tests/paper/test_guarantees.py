"""Sections I to III: problems without an order, and what the guarantees mean."""

from __future__ import annotations

from itertools import permutations

import pytest

from driftline.engine.reference import interpret
from tests.paper.operations import LEFT, RIGHT, Records, concatenation, reference, windows
from tests.stepped_cluster import SteppedCluster

# II Motivation --------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(8), range(8, 16), range(16, 24)], ids=str)
def test_after_a_and_ab_the_next_output_is_abc_though_the_replay_races(seeds: range) -> None:
    """Section II: "if input elements are strings "a", "b", "c", and user have already received
    "a" and "ab", it is expected that the current state is "ab", and the next output element is
    "abc". However, after recovery and state reprocessing, the current state can become "ba"."
    """
    raced = 0
    for seed in seeds:
        arrived: list[str] = []
        cluster = SteppedCluster(
            concatenation(arrived), [LEFT, RIGHT], seed, interval=99.0, window=1
        )
        cluster.run(cluster.has(2))
        assert cluster.values[:2] == ["a", "ab"]
        for node in cluster.nodes:
            cluster.crash(node)
        arrived.clear()
        cluster.run(cluster.stopped)
        assert cluster.values == ["a", "ab", "abc"]
        raced += "a" not in arrived[: arrived.index("b")]
    assert raced, "b preceded a in no replay: the test shows nothing"


def test_unordered_replay_may_contradict_delivered_outputs() -> None:
    """Section II: "the next output element "bac" will be inconsistent with the previously delivered
    elements "a" and "ab"."
    """
    consistent = ["a", "ab", "abc"]
    found = []
    for seed in range(30):
        cluster = SteppedCluster(
            concatenation(), [LEFT, RIGHT], seed, mode="at-least-once", interval=99.0, window=1
        )
        cluster.run(cluster.has(2))
        if cluster.values[:2] == consistent[:2]:
            for node in cluster.nodes:
                cluster.crash(node)
        cluster.run(cluster.stopped)
        found.append(cluster.values)
    contradictions = [v for v in found if v[:2] == consistent[:2] and set(v) - set(consistent)]
    assert contradictions, "the simple replay is not distinguished from a consistent one"


# III Formal model -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_end_user_receives_be_and_not_de(seed: int) -> None:
    """Section III-B: "the system reaches precisely the same state after recovery. Eventually, the
    end-user receives the output element be that is expected within such execution." III-D: "de is
    inconsistent with the previous output, because element with prefix d has already been released"
    """
    left: Records = [(1, "a"), (2, "c"), (8, "e")]
    right: Records = [(4, "d"), (6, "b")]
    cluster = SteppedCluster(windows(), [left, right], seed, window=1)
    cluster.run(cluster.has(4))
    assert cluster.values == ["a", "ac", "cd", "db"]
    for node in cluster.nodes:
        cluster.crash(node)
    cluster.run(cluster.stopped)
    assert cluster.values == ["a", "ac", "cd", "db", "be"]


@pytest.mark.parametrize("victim", ["node-0", "node-1", "front-0", "front-1", "master", "consumer"])
def test_outputs_with_failures_equal_those_without_failures(
    victim: str,
) -> None:
    """Definition 6: "System provides for exactly-once if it is possible to obtain each output
    element in a system with a reference recovery function." Here with equality: the possible
    output is one, and it is complete.
    """
    left: Records = [(time, f"l{time}") for time in range(1, 12, 2)]
    right: Records = [(time, f"r{time}") for time in range(2, 12, 3)]
    wanted = list(interpret(concatenation(), [left, right]))
    for crash_at in (40, 150, 260):
        cluster = SteppedCluster(concatenation(), [left, right], crash_at)
        for _ in range(crash_at):
            cluster.step()
        cluster.crash(victim)
        cluster.run(cluster.stopped)
        assert not cluster.master.coordinator.error
        assert cluster.items == wanted
        assert cluster.consumer.items == wanted, "not in label order"


def test_at_least_once_is_equivalent_to_duplicated_input() -> None:
    """Section III-E: "At-least-once can be reproduced if the input contains duplicated items."""
    left: Records = [(time, f"{time} ") for time in range(1, 8)]
    repeated = 0
    for seed in range(8):
        cluster = SteppedCluster(
            concatenation(), [left, []], seed, mode="at-least-once", interval=99.0
        )
        cluster.run(cluster.has(3))
        cluster.crash("node-0")
        cluster.run(cluster.stopped)
        last = max(cluster.values, key=lambda text: len(str(text)))
        assert set(str(last).split()) == {str(time) for time, _ in left}
        repeated += len(cluster.values) > len(left)
    assert repeated, "no element was repeated"


def test_concatenation_does_not_commute() -> None:
    """Definition 9: "D contains non-commutative operation if" ((x, y), s1) is in D and ((y, x),
    s1) is not.
    """
    finals = {
        reference(concatenation(), list(enumerate(order, 1)), [])[-1]
        for order in permutations("abc")
    }
    assert len(finals) == 6


def test_repeated_runs_on_the_same_data_produce_the_same_results() -> None:
    """Section I: "The determinism means that repeated runs of the system on the same data produce
    the same results." III-F: "An essential property of a deterministic system is that it preserves
    the same order of elements before non-commutative operations on each run."
    """
    left: Records = [(time, f"l{time}") for time in range(1, 12, 2)]
    right: Records = [(time, f"r{time}") for time in range(1, 12, 3)]
    outcomes = set()
    dialogues = set()
    for seed in range(12):
        cluster = SteppedCluster(concatenation(), [left, right], seed, nodes=1 + seed % 3)
        cluster.run(cluster.stopped)
        outcomes.add(tuple(map(repr, cluster.items)))
        dialogues.add(len(cluster.messages))
    assert len(dialogues) > 6, "all runs had the same order"
    assert outcomes == {tuple(map(repr, interpret(concatenation(), [left, right])))}
