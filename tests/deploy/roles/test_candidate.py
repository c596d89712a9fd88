"""A candidate waits for its turn, and then leads from the state in the registry."""

from __future__ import annotations

import pytest

from driftline.coordinator.leadership import (
    LEADER_TIMEOUT_MIN_S,
    SUCCESSOR_POLL_S,
    Enlist,
    FindPredecessor,
    FindSuccessor,
)
from driftline.coordinator.registry import (
    REGISTRY_RETRY_S,
    ClusterState,
    WriteState,
    check_identity,
)
from driftline.deploy.roles.candidate import Candidate, ReadState
from driftline.deploy.roles.master import Master
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.wire.messages import Hello, encode
from driftline.engine.wire.role import IOJob
from driftline.simulation.scenarios.flows import two_fronts

MEMBERS = ("node-0", "front-0", "front-1")


class CandidateBench:
    """A candidate and the jobs that it requests."""

    def __init__(self) -> None:
        self.candidate = Candidate("me#1", self._make)
        self.now = 0.0
        self.pass_time(0.0)

    def _make(self, found: ClusterState | None) -> Master:
        state = check_identity(found, "me", "the registry")
        about = 1, make_plan(two_fronts), get_policy("exactly-once"), state, 1.0, "run"
        return Master(*about, session=1, process="me#1")

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.candidate.now = self.now
        self.candidate.tick(self.now)

    def next_job(self) -> IOJob:
        [job] = self.candidate.jobs
        self.candidate.jobs.clear()
        return job

    def complete_job(self, kind: type[IOJob], result: object = None) -> None:
        job = self.next_job()
        assert type(job) is kind
        self.candidate.on_job_done(job, result)
        self.pass_time(0.0)

    def hello(self) -> None:
        for name in MEMBERS:
            self.candidate.receive(encode((name, 0, 0), Hello(name, name, 0, 1)))

    def reach_head_of_queue(self) -> CandidateBench:
        self.complete_job(Enlist)
        self.complete_job(FindPredecessor, "")
        return self


def test_candidate_makes_no_decision_before_it_leads() -> None:
    bench = CandidateBench()
    bench.complete_job(Enlist)
    bench.complete_job(FindPredecessor, "another#1")
    bench.hello()
    bench.pass_time(100.0)
    assert (bench.candidate.jobs, bench.candidate.outbox) == ([], [])
    bench.candidate.on_queue_changed()
    bench.pass_time(0.0)
    bench.complete_job(FindPredecessor, "")
    bench.complete_job(ReadState, ClusterState("me", 4, 2, epoch=6))
    bench.hello()
    write = bench.next_job()
    assert isinstance(write, WriteState)
    assert (write.state.version, write.state.incarnation, write.state.epoch) == (5, 3, 7)
    assert write.state.leader == "me#1"


def test_unreachable_registry_is_retried() -> None:
    bench = CandidateBench()
    bench.complete_job(Enlist, Unavailable("no server"))
    assert bench.candidate.jobs == []
    assert "no server" in bench.candidate.obstacle
    bench.pass_time(REGISTRY_RETRY_S)
    bench.complete_job(Enlist)
    bench.complete_job(FindPredecessor, Unavailable("no server"))
    bench.pass_time(REGISTRY_RETRY_S)
    bench.complete_job(FindPredecessor, "")
    bench.complete_job(ReadState, Unavailable("no server"))
    bench.pass_time(REGISTRY_RETRY_S)
    bench.complete_job(ReadState)
    assert bench.candidate.master is not None
    assert bench.candidate.obstacle == ""


@pytest.mark.parametrize("leads", [False, True])
def test_session_expiry_ends_the_candidate(leads: bool) -> None:
    bench = CandidateBench().reach_head_of_queue()
    if leads:
        bench.complete_job(ReadState)
    assert not bench.candidate.broken
    bench.candidate.on_session_expired()
    assert bench.candidate.broken


def test_candidate_missing_from_the_queue_does_not_lead() -> None:
    bench = CandidateBench()
    bench.complete_job(Enlist)
    bench.complete_job(FindPredecessor, StateMismatch("no longer in the queue of masters"))
    assert bench.candidate.broken
    assert bench.candidate.jobs == []


def test_state_of_another_run_is_rejected() -> None:
    bench = CandidateBench().reach_head_of_queue()
    job = bench.next_job()
    with pytest.raises(StateMismatch):
        bench.candidate.on_job_done(job, ClusterState("another flow", 4, 2))


class LeaderWithoutNode(CandidateBench):
    """A leading candidate that no longer receives messages from its node."""

    def __init__(self) -> None:
        super().__init__()
        self.reach_head_of_queue().complete_job(ReadState, ClusterState("me", 4, 2, epoch=6))

    def pass_time_without_node(self, seconds: float) -> None:
        """Let time pass while the fronts send heartbeats."""
        until = self.now + seconds
        while self.now < until:
            for name in MEMBERS[1:]:
                self.candidate.receive(encode((name, 0, 0), Hello(name, name, 0, 1)))
            self.pass_time(0.5)


def test_leader_that_misses_a_member_steps_down_for_a_standby(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = LeaderWithoutNode()
    bench.pass_time_without_node(LEADER_TIMEOUT_MIN_S)
    assert bench.candidate.jobs == []
    bench.pass_time_without_node(1.0)
    bench.complete_job(FindSuccessor, "next#1")
    assert bench.candidate.broken
    assert bench.candidate.stepped_down
    assert (
        "this master has received nothing from node-0. It steps down for the next one"
        in caplog.text
    )
    bench.hello()
    bench.pass_time_without_node(10.0)
    assert (bench.candidate.jobs, bench.candidate.outbox) == ([], []), "it makes no decisions"


@pytest.mark.parametrize("answer", ["", Unavailable("no server")], ids=["nobody", "unknown"])
def test_leader_without_a_standby_does_not_step_down(answer: object) -> None:
    bench = LeaderWithoutNode()
    bench.pass_time_without_node(LEADER_TIMEOUT_MIN_S + 1.0)
    bench.complete_job(FindSuccessor, answer)
    assert not bench.candidate.broken
    bench.pass_time_without_node(SUCCESSOR_POLL_S)
    bench.complete_job(FindSuccessor, answer)
    bench.hello()
    assert isinstance(bench.next_job(), WriteState)
