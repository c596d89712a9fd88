"""A hole in the network between the leader and a member: a master that reaches everybody leads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from driftline.coordinator.leadership import PATIENCE_S
from driftline.deploy.simulation.masters import master_of
from driftline.deploy.simulation.scenarios.live import Pace
from driftline.deploy.simulation.scenarios.scenario import (
    MASTERS,
    Scenario,
    scenario,
    without_faults,
)
from driftline.deploy.simulation.scenarios.troubles import Hole
from driftline.deploy.simulation.simulation import Simulation

LONG_S = 40.0
"""Records come for so long: for longer than it takes a leader to make way."""

SEEDS = range(1, 3)

WAYS = ("from", "to", "both")


def streaming(seed: int, policy: str, until_s: float = LONG_S) -> Scenario:
    """A run with three masters, whose records come for so long, and nothing fails."""
    drawn = replace(without_faults(scenario(seed, name=policy)), standby=True, nodes=2, records=60)
    pace = Pace(until_s=until_s, bursts=0, skew_s=0.0, unruly=0.0, producers=1)
    return replace(
        drawn, live=(pace,), work=None, behind=None, drain_at_s=None, resized=(), embedded=False
    )


class Holed(Simulation):
    """A run with a hole, from a time on, between the master that leads then and a member; perhaps
    a node dies in it. `way`: what is lost, of the member's view."""

    def __init__(self, what: Scenario, member: str, way: str, *, crash: str = "") -> None:
        super().__init__(what)
        self.leaders: list[str] = []
        """The masters that led, as of each look."""
        self._member, self._way = member, way
        self.timeline.at_time(1.0, self._begin_hole)
        self.timeline.at_time(1.1, self._look)
        if crash:
            host = self.world.hosts
            self.timeline.at_time(2.0, lambda: self.world.crash(host[crash], "by the test"))

    def _leader(self) -> str:
        found = [(host, master_of(host.party)) for host in self.masters.hosts]
        return next((h.name for h, m in found if m is not None and m.coordinator.leads), "")

    def _begin_hole(self) -> None:
        leader, member = self._leader(), self._member
        if self._way != "to":
            self.world.network.hole(Hole(member, leader, 0.0))
        if self._way != "from":
            self.world.network.hole(Hole(leader, member, 0.0))

    def _look(self) -> None:
        if (leader := self._leader()) and self.leaders[-1:] != [leader]:
            self.leaders.append(leader)
        self.timeline.after(0.1, self._look)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("member", ["node-1", "front-0"])
def test_in_a_run_at_work_the_next_master_takes_over_and_nothing_is_recovered(
    member: str, way: str
) -> None:
    for seed in SEEDS:
        simulation = Holed(streaming(seed, "exactly-once"), member, way)
        outcome = simulation.run()
        assert not outcome.problem
        assert len(simulation.leaders) == 2
        assert outcome.counted["made way"] == 1
        assert outcome.counted["recovery"] == 0


@pytest.mark.parametrize(
    ("way", "policy"),
    [
        pytest.param(way, policy, marks=[] if m == n else [pytest.mark.soak])
        for m, way in enumerate(WAYS)
        for n, policy in enumerate(("exactly-once", "two-phase", "strong-productions"))
    ],
)
def test_a_recovery_does_not_wait_for_the_end_of_the_hole(way: str, policy: str) -> None:
    for seed in SEEDS:
        simulation = Holed(streaming(seed, policy), "node-1", way, crash="node-0")
        outcome = simulation.run()
        assert not outcome.problem
        assert outcome.counted["made way"] == 1


def dead_to_all(seconds: float) -> Iterator[Hole]:
    """Nobody hears node-0 for so long."""
    for master in MASTERS:
        yield Hole("node-0", master, 1.0, 1.0 + seconds)


def test_a_member_that_no_master_hears_makes_them_take_turns_ever_more_slowly() -> None:
    seconds = 32 * PATIENCE_S
    what = replace(streaming(2, "exactly-once", 10.0), holes=tuple(dead_to_all(seconds)))
    outcome = Simulation(replace(what, faults=replace(what.faults, until=seconds + 2))).run()
    assert not outcome.problem
    # Each of the three waits for 20 s, twice (or more often, if the run gets on), then 40, 80 ...
    assert 9 <= outcome.counted["made way"] <= 12
