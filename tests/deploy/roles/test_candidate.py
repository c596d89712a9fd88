"""A candidate waits for its turn, and leads with what the registry holds then."""

from __future__ import annotations

import pytest

from driftline.coordinator.leadership import (
    LOOK_EVERY_S,
    PATIENCE_S,
    Enlist,
    LookAtQueue,
    LookBehind,
)
from driftline.coordinator.registry import AGAIN_S, ClusterState, WriteState, check_identity
from driftline.deploy.roles.candidate import Candidate, ReadState
from driftline.deploy.roles.master import Master
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy
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
        about = 1, plan(two_fronts), policy("exactly-once"), state, 1.0, "run"
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
        self.candidate.done(job, result)
        self.pass_time(0.0)

    def hello(self) -> None:
        for name in MEMBERS:
            self.candidate.receive(encode((name, 0, 0), Hello(name, name, 0, 1)))

    def first(self) -> Bench:
        self.does(Enlist)
        self.does(LookAtQueue, "")
        return self


def test_it_decides_nothing_until_it_is_the_first() -> None:
    bench = Bench()
    bench.does(Enlist)
    bench.does(LookAtQueue, "another#1")
    bench.hello()
    bench.pass_time(100.0)
    assert (bench.candidate.jobs, bench.candidate.outbox) == ([], [])
    bench.candidate.noticed()
    bench.pass_time(0.0)
    bench.does(LookAtQueue, "")
    bench.does(ReadState, ClusterState("me", 4, 2, epoch=6))
    bench.hello()
    write = bench.asked()
    assert isinstance(write, WriteState)
    assert (write.state.version, write.state.incarnation, write.state.epoch) == (5, 3, 7)
    assert write.state.leader == "me#1"


def test_a_registry_that_cannot_be_reached_is_asked_again() -> None:
    bench = Bench()
    bench.does(Enlist, Unavailable("no server"))
    assert bench.candidate.jobs == []
    assert "no server" in bench.candidate.obstacle
    bench.pass_time(AGAIN_S)
    bench.does(Enlist)
    bench.does(LookAtQueue, Unavailable("no server"))
    bench.pass_time(AGAIN_S)
    bench.does(LookAtQueue, "")
    bench.does(ReadState, Unavailable("no server"))
    bench.pass_time(AGAIN_S)
    bench.does(ReadState)
    assert bench.candidate.master is not None
    assert bench.candidate.obstacle == ""


@pytest.mark.parametrize("leads", [False, True])
def test_without_a_session_its_process_ends_and_another_one_queues_up(leads: bool) -> None:
    bench = Bench().first()
    if leads:
        bench.does(ReadState)
    assert not bench.candidate.broken
    bench.candidate.expired()
    assert bench.candidate.broken


def test_who_has_lost_its_place_does_not_lead() -> None:
    bench = Bench()
    bench.does(Enlist)
    bench.does(LookAtQueue, StateMismatch("not among the masters any more"))
    assert bench.candidate.broken
    assert bench.candidate.jobs == []


def test_the_state_of_another_run_is_refused() -> None:
    bench = Bench().first()
    job = bench.asked()
    with pytest.raises(StateMismatch):
        bench.candidate.done(job, ClusterState("another flow", 4, 2))


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


def test_a_leader_that_misses_a_member_for_long_makes_way_for_who_stands_by(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Leader()
    bench.waits(PATIENCE_S)
    assert bench.candidate.jobs == []
    bench.waits(1.0)
    bench.does(LookBehind, "next#1")
    assert bench.candidate.broken
    assert bench.candidate.stepped_down
    assert "this master hears nothing of node-0. It steps down for the next one" in caplog.text
    bench.hello()
    bench.waits(10.0)
    assert (bench.candidate.jobs, bench.candidate.outbox) == ([], []), "it decides nothing"


@pytest.mark.parametrize("answer", ["", Unavailable("no server")], ids=["nobody", "unknown"])
def test_a_leader_with_nobody_behind_it_goes_on_waiting(answer: object) -> None:
    bench = Leader()
    bench.waits(PATIENCE_S + 1.0)
    bench.does(LookBehind, answer)
    assert not bench.candidate.broken
    bench.waits(LOOK_EVERY_S)
    bench.does(LookBehind, answer)
    bench.hello()
    assert isinstance(bench.asked(), WriteState)
