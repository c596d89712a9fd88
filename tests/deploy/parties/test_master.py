"""The master takes work for lost only if nobody is at it."""

from __future__ import annotations

from driftline.coordinator.phases import Phase
from driftline.coordinator.registry import ClusterState
from driftline.deploy.parties.master import STALLED_AFTER_S, Master
from driftline.deploy.simulation.scenarios.flows import two_fronts
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy
from driftline.engine.wire.messages import Acknowledge, Alive, Hello, Message, encode

EVERYBODY = ("node-0", "front-0", "front-1")


class Running:
    """A master whose node has sent something that was never worked off."""

    def __init__(self) -> None:
        self.master = Master(1, plan(two_fronts), policy("exactly-once"), ClusterState("me"), 60.0)
        self.now = 1.0
        self.say(Hello, incarnation=0)
        [job] = self.master.jobs
        self.master.done(job, None)
        self.say(Hello, incarnation=1)
        assert self.master.coordinator.phase is Phase.RUNNING
        lost = Acknowledge(((1, 5, 77),), ((0, 0, 9), (1, 0, 9)), 0)
        self.master.receive(encode(("node-0", 1, 1), lost))

    def say(self, kind: type[Message], incarnation: int = 1, silent: tuple[str, ...] = ()) -> None:
        for name in EVERYBODY:
            if name not in silent:
                hello = Hello(name, name, incarnation, 1)
                self.master.receive(encode((name, incarnation, 0), hello))

    def recoveries_after(
        self, seconds: float, alive: Alive | None = None, silent: tuple[str, ...] = ()
    ) -> int:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.2
            self.say(Hello, silent=silent)
            if alive is not None:
                self.master.receive(encode(("node-0", 1, 0), alive))
                alive = Alive(alive.process, alive.steps + (not alive.busy), alive.busy)
            self.master.now = self.now
            self.master.tick(self.now)
        return self.master.coordinator.recoveries


def test_work_that_nobody_does_is_lost() -> None:
    assert Running().recoveries_after(STALLED_AFTER_S + 1) == 1


def test_work_is_not_lost_while_a_node_is_in_the_middle_of_it() -> None:
    assert Running().recoveries_after(5 * STALLED_AFTER_S, Alive("node-0", 3, 1)) == 0


def test_work_is_not_lost_while_a_node_goes_on_with_it() -> None:
    assert Running().recoveries_after(5 * STALLED_AFTER_S, Alive("node-0", 3, 0)) == 0


def test_what_a_silent_node_does_is_not_known() -> None:
    running = Running()
    assert running.recoveries_after(1.0) == 0
    running.master.coordinator._members._extended_s["node-0"] = 60.0
    assert running.recoveries_after(2 * STALLED_AFTER_S, silent=("node-0",)) == 0
