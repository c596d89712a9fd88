"""Lost messages are detected soon; slow disks and stale answers do not count as losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import pytest

from driftline.engine.policy import get_policy
from driftline.engine.wire.messages import Bundle, LastBundle, Marker, Message, Prepared, decode
from driftline.engine.wire.role import Role
from driftline.simulation.scenarios.flows import SIMULATED, SimulatedFlow
from driftline.simulation.scenarios.live import ArrivalSchedule
from driftline.simulation.scenarios.scenario import Scenario
from driftline.simulation.simulation import Outcome, Simulation
from driftline.simulation.world.timeline import Faults
from driftline.simulation.world.world import SimulatedHost, World
from tests.mutations import outputs

CALM = Faults(delay_s=0.001)
CUT_S = 0.05
FLOWS = {simulated.spec.rpartition(":")[2]: simulated for simulated in SIMULATED}

DropRule = Callable[[World, SimulatedHost, str, Message], bool]
"""Predicate that decides for each sent message whether the network drops it."""


def is_of_producer(host: SimulatedHost, to: str) -> bool:
    """Return whether a message is from or to a producer."""
    return host.name.startswith("producer") or to.startswith("producer")


@contextmanager
def lossy_network(should_drop: DropRule) -> Iterator[None]:
    """Drop the messages for which `should_drop` returns True."""
    send = World._send

    def mutated(self: World, host: SimulatedHost, party: Role, to: str, data: bytes) -> None:
        if is_of_producer(host, to) or not should_drop(self, host, to, decode(data)[1]):
            send(self, host, party, to, data)

    with patch.object(World, "_send", mutated):
        yield


def calm(
    mode: str,
    *,
    until_s: float,
    bursts: int = 0,
    flow: SimulatedFlow = FLOWS["two_counts"],
    faults: Faults = CALM,
) -> Scenario:
    """Return a scenario of two nodes and a live input, without random faults."""
    pace = ArrivalSchedule(until_s=until_s, bursts=bursts, skew_s=0.0, misbehaves=0.0, producers=1)
    return Scenario(1, flow, get_policy(mode), 2, 40, 100, 0.05, faults, live=(pace,))


def run_without_problem(what: Scenario) -> Outcome:
    """Run a scenario, check that it has no problem, and return its outcome."""
    found = Simulation(what).run()
    assert not found.problem, found.problem
    return found


@pytest.mark.parametrize("mode", ["two-phase", "at-least-once"])
@pytest.mark.parametrize("sender", ["front", "node"])
def test_lost_marker_is_detected_without_later_messages(mode: str, sender: str) -> None:
    """Records arrive in two bursts, 20 s apart; in between, a cut drops all that `sender` sends."""
    lost: list[float] = []
    prepared: list[float] = []

    def should_drop(world: World, host: SimulatedHost, to: str, message: Message) -> bool:
        if lost and world.timeline.now > lost[0] + CUT_S and isinstance(message, Prepared):
            prepared.append(world.timeline.now)
        if not (
            host.name.startswith(sender) and to == "node-1" and 1.0 < world.timeline.now < 19.0
        ):
            return False
        if isinstance(message, Marker) and not lost:
            lost.append(world.timeline.now)
        return bool(lost) and world.timeline.now <= lost[0] + CUT_S

    with lossy_network(should_drop):
        found = run_without_problem(calm(mode, until_s=20.0, bursts=1))
    assert found.counted["recovery from a snapshot"] == 1
    assert prepared[0] - lost[0] < 1.0, "it took long until a snapshot could be prepared again"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["exactly-once", "two-phase"])
def test_slow_disks_take_snapshots_slowly_and_nothing_is_recovered_from(mode: str) -> None:
    """A disk takes 35 s for a part on average; with or without markers, that is no loss."""
    faults = Faults(until_s=1000.0, delay_s=0.001, job_s=35.0)  # no faults except slow disks
    what = calm(mode, until_s=200.0, faults=faults, flow=FLOWS["counts"])
    found = run_without_problem(what)
    assert (
        found.counted["recovery from the beginning"]
        == found.counted["recovery from a snapshot"]
        == 0
    )
    assert found.counted["committed snapshot"] >= 1


def test_late_answer_of_a_crashed_consumer_is_ignored() -> None:
    """The consumer crashes directly after its answer, which arrives 5 s later.

    The consumer has stored more bundles by then: if the stale answer counted, the run would stop.
    """
    late: list[LastBundle] = []

    def should_drop(world: World, host: SimulatedHost, to: str, message: Message) -> bool:
        if isinstance(message, LastBundle) and not late:
            late.append(message)
            world.timeline.after(0.0, lambda: _crash(world, host))
        return False

    def _crash(world: World, host: SimulatedHost) -> None:
        process = host.process
        world.crash(host, "after it has answered")
        world.network._lost_after.pop(process, None)
        world.network._late_messages[process] = 5.0

    with lossy_network(should_drop):
        found = run_without_problem(calm("exactly-once", until_s=10.0))
    assert late
    assert found.counted["crash consumer after it has answered"] == 1


def run_with_late_bundle() -> Outcome:
    """Run a flow whose node crashes as it sends a bundle, and return the outcome.

    The bundle arrives after the restarted node has asked the consumer for the last bundle.
    """
    late: list[tuple[Bundle, bytes]] = []
    answers: list[LastBundle] = []
    send = World._send

    def mutated(self: World, host: SimulatedHost, role: Role, to: str, data: bytes) -> None:
        message = None if is_of_producer(host, to) else decode(data)[1]
        if isinstance(message, Bundle) and message.blobs and not late and self.timeline.now > 1.0:
            late.append((message, data))
            self.timeline.after(0.0, partial(self.crash, host, "with its bundle"))
            return
        send(self, host, role, to, data)
        if isinstance(message, LastBundle) and late and not answers:
            bundle, data = late[0]
            if message.barrier == bundle.barrier and message.incarnation > bundle.incarnation:
                answers.append(message)
                self.timeline.after(0.0, partial(role.receive, data))

    with patch.object(World, "_send", mutated):
        found = Simulation(calm("exactly-once", until_s=5.0)).run()
    assert answers[0].t_last < late[0][0].t_last, "the late bundle was not stored"
    return found


def test_late_bundle_of_a_crashed_node_is_ignored() -> None:
    found = run_with_late_bundle()
    assert not found.problem, found.problem


def test_without_a_fence_a_late_bundle_repeats_outputs() -> None:
    with outputs.consumers_have_no_fence():
        assert run_with_late_bundle().problem
