"""Rescaling: its steps, and the events that cancel it."""

from __future__ import annotations

import pytest

from driftline.coordinator.coordinator import MISSING_AFTER_S, Phase
from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.coordinator.rescaling import PAUSE_TIMEOUT_S, RescalePhase
from driftline.engine.wire.messages import (
    EndOfInput,
    Hello,
    Joined,
    Message,
    Pause,
    Paused,
    Resume,
)
from tests.coordinator.cluster import ScriptedCluster

FOUND = ClusterState("me", 9, 3, (SnapshotRecord(7, 40, (40,), 3),), layout=(0, 1))
NEXT = ["node-2", "node-3", "node-4"]


class RescalingCluster(ScriptedCluster):
    """A running cluster of two nodes that is being rescaled to three."""

    def __init__(self, mode: str = "exactly-once") -> None:
        super().__init__(mode=mode, state=FOUND)
        self.hello(*self.processes, incarnation=0)
        self.write()
        self.hello(*self.nodes, ready=True)
        self.sent()
        self.coordinator.rescale(3)

    def joiners_say_hello(self) -> None:
        for name in NEXT:
            self.coordinator.on_hello(name, Hello(f"at {name}", f"{name}#1", 0, 0))

    def joined(self, number: int, *names: str, taken: int = 4, earlier: int = 0) -> None:
        """Report that nodes have copied a snapshot; `earlier`: to a master this many epochs ago."""
        state = self.coordinator.state
        for name in names or NEXT:
            epoch = state.epoch - earlier
            message = Joined((2, 3, 4), f"{name}#1", epoch, number, taken, 100)
            self.coordinator.rescaling.joined(name, message, state)

    def report_progress(self, delivered: int = 40, left: int = 39) -> list[tuple[str, Message]]:
        self.coordinator.consider_rescaling(delivered, left)
        return self.sent()

    def hold(self) -> list[tuple[str, Message]]:
        """Let the joining nodes catch up, and pause the front at 90."""
        self.joiners_say_hello()
        self.joined(7, taken=3)
        assert ("front-0", Pause(1, -1)) in self.report_progress()
        self.coordinator.rescaling.on_paused("front-0", Paused(1, 90, 0))
        return self.report_progress()

    @property
    def step(self) -> RescalePhase:
        return self.coordinator.rescaling.phase


def test_joining_node_that_restarted_does_not_count_as_complete() -> None:
    cluster = RescalingCluster()
    cluster.report_progress()
    cluster.joiners_say_hello()
    cluster.joined(7, taken=3, earlier=1)
    assert not any(isinstance(message, Pause) for _, message in cluster.report_progress())
    cluster.joined(7, taken=3)
    assert ("front-0", Pause(1, -1)) in cluster.report_progress()


def test_fronts_resume_after_the_pause_timeout() -> None:
    cluster = RescalingCluster()
    cluster.hold()
    cluster.pass_time(PAUSE_TIMEOUT_S + 0.1)
    cluster.sent()
    assert cluster.report_progress() == [("front-0", Resume())]
    assert cluster.step is RescalePhase.COPYING
    cluster.coordinator.rescaling.on_paused("front-0", Paused(1, 90, 0))
    cluster.pass_time(1.5)
    cluster.joiners_say_hello()
    cluster.sent()
    assert cluster.report_progress() == [("front-0", Pause(2, -1))], "the rescale is retried"
    cluster.coordinator.rescaling.on_paused("front-0", Paused(1, 90, 0))
    assert cluster.report_progress() == [], "the answer is to the previous pause"


def test_postponed_rescaling_does_not_wake_a_master_that_waits_for_a_node() -> None:
    cluster = RescalingCluster()
    cluster.hold()
    cluster.pass_time(PAUSE_TIMEOUT_S + 0.1)
    cluster.report_progress()
    assert cluster.step is RescalePhase.COPYING
    cluster.pass_time(2 * MISSING_AFTER_S, silent=("node-0",))
    assert cluster.phase() is Phase.GATHERING
    assert cluster.coordinator.deadline > cluster.now


def test_draining_run_cancels_the_rescale() -> None:
    cluster = RescalingCluster()
    cluster.hold()
    cluster.coordinator.on_end_of_input("front-0", EndOfInput(90, 0, 0))
    cluster.sent()
    assert cluster.report_progress() == [("front-0", Resume())]
    assert cluster.step is RescalePhase.NONE


@pytest.mark.parametrize("mode", ["none", "at-least-once", "two-phase", "strong-productions"])
def test_rescale_is_rejected_with_other_policies(mode: str) -> None:
    cluster = ScriptedCluster(mode=mode)
    cluster.coordinator.rescale(3)
    assert (
        f"with {mode} a run keeps its number of nodes"
        in cluster.coordinator.rescaling.refusal_reason
    )


def test_invalid_node_count_is_rejected() -> None:
    cluster = RescalingCluster()
    cluster.coordinator.rescale(0)
    assert (
        cluster.coordinator.rescaling.refusal_reason
        == "cannot run on 0 nodes: the number must be from 1 to 64"
    )
    cluster.coordinator.rescale(2)
    assert (cluster.step, cluster.coordinator.rescaling.refusal_reason) == (RescalePhase.NONE, "")


def test_later_of_two_numbered_requests_counts() -> None:
    cluster = RescalingCluster()
    rescaling = cluster.coordinator.rescaling
    cluster.coordinator.rescale(3, 5)
    assert rescaling.next_layout == (5, 6, 7)
    cluster.coordinator.rescale(3, 2)
    assert rescaling.next_layout == (5, 6, 7), "an agent that has not seen the later request"
    cluster.coordinator.rescale(3, 8)
    assert rescaling.next_layout == (8, 9, 10)
    cluster.coordinator.rescale(2, 11)
    assert rescaling.next_nodes == []
    cluster.coordinator.rescale(3, 8)
    assert rescaling.next_nodes == []
