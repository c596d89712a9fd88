"""A candidate waits for its turn, and leads with what the registry holds then."""

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
from driftline.engine.wire.role import DurableJob
from driftline.simulation.scenarios.flows import two_fronts

MEMBERS = ("node-0", "front-0", "front-1")


class Bench:
    """A candidate, and what its driver is asked to do."""

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

    def asked(self) -> DurableJob:
        [job] = self.candidate.jobs
        self.candidate.jobs.clear()
        return job

    def does(self, kind: type[DurableJob], result: object = None) -> None:
        job = self.asked()
        assert type(job) is kind
        self.candidate.on_job_done(job, result)
        self.pass_time(0.0)

    def hello(self) -> None:
        for name in MEMBERS:
            self.candidate.receive(encode((name, 0, 0), Hello(name, name, 0, 1)))

    def first(self) -> Bench:
        self.does(Enlist)
        self.does(FindPredecessor, "")
        return self


def test_candidate_makes_no_decision_before_it_leads() -> None:
    bench = Bench()
    bench.does(Enlist)
    bench.does(FindPredecessor, "another#1")
    bench.hello()
    bench.pass_time(100.0)
    assert (bench.candidate.jobs, bench.candidate.outbox) == ([], [])
    bench.candidate.on_queue_changed()
    bench.pass_time(0.0)
    bench.does(FindPredecessor, "")
    bench.does(ReadState, ClusterState("me", 4, 2, epoch=6))
    bench.hello()
    write = bench.asked()
    assert isinstance(write, WriteState)
    assert (write.state.version, write.state.incarnation, write.state.epoch) == (5, 3, 7)
    assert write.state.leader == "me#1"


def test_unreachable_registry_is_retried() -> None:
    bench = Bench()
    bench.does(Enlist, Unavailable("no server"))
    assert bench.candidate.jobs == []
    assert "no server" in bench.candidate.obstacle
    bench.pass_time(REGISTRY_RETRY_S)
    bench.does(Enlist)
    bench.does(FindPredecessor, Unavailable("no server"))
    bench.pass_time(REGISTRY_RETRY_S)
    bench.does(FindPredecessor, "")
    bench.does(ReadState, Unavailable("no server"))
    bench.pass_time(REGISTRY_RETRY_S)
    bench.does(ReadState)
    assert bench.candidate.master is not None
    assert bench.candidate.obstacle == ""


@pytest.mark.parametrize("leads", [False, True])
def test_session_expiry_ends_the_candidate(leads: bool) -> None:
    bench = Bench().first()
    if leads:
        bench.does(ReadState)
    assert not bench.candidate.broken
    bench.candidate.on_session_expired()
    assert bench.candidate.broken


def test_candidate_missing_from_the_queue_does_not_lead() -> None:
    bench = Bench()
    bench.does(Enlist)
    bench.does(FindPredecessor, StateMismatch("no longer in the queue of masters"))
    assert bench.candidate.broken
    assert bench.candidate.jobs == []


def test_the_state_of_another_run_is_refused() -> None:
    bench = Bench().first()
    job = bench.asked()
    with pytest.raises(StateMismatch):
        bench.candidate.on_job_done(job, ClusterState("another flow", 4, 2))


class Leader(Bench):
    """A candidate that leads and hears its node no more."""

    def __init__(self) -> None:
        super().__init__()
        self.first().does(ReadState, ClusterState("me", 4, 2, epoch=6))

    def waits(self, seconds: float) -> None:
        """Time passes, in which the fronts say hello."""
        until = self.now + seconds
        while self.now < until:
            for name in MEMBERS[1:]:
                self.candidate.receive(encode((name, 0, 0), Hello(name, name, 0, 1)))
            self.pass_time(0.5)


def test_leader_that_misses_a_member_steps_down_for_a_standby(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Leader()
    bench.waits(LEADER_TIMEOUT_MIN_S)
    assert bench.candidate.jobs == []
    bench.waits(1.0)
    bench.does(FindSuccessor, "next#1")
    assert bench.candidate.broken
    assert bench.candidate.stepped_down
    assert "this master hears nothing of node-0. It steps down for the next one" in caplog.text
    bench.hello()
    bench.waits(10.0)
    assert (bench.candidate.jobs, bench.candidate.outbox) == ([], []), "it decides nothing"


@pytest.mark.parametrize("answer", ["", Unavailable("no server")], ids=["nobody", "unknown"])
def test_leader_without_a_standby_does_not_step_down(answer: object) -> None:
    bench = Leader()
    bench.waits(LEADER_TIMEOUT_MIN_S + 1.0)
    bench.does(FindSuccessor, answer)
    assert not bench.candidate.broken
    bench.waits(SUCCESSOR_POLL_S)
    bench.does(FindSuccessor, answer)
    bench.hello()
    assert isinstance(bench.asked(), WriteState)
