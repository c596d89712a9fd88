"""A scenario: what one seed simulates, and whether the outcome is the only right one.

>>> Simulation(scenario(7)).run().problem
''
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from coordinator.registry import ClusterState, RunOutcome, check_identity, encode_state
from deploy.consumer import ConsumerServer
from deploy.front import Front
from deploy.master import Master
from deploy.node import Node
from deploy.simulation.disks import MasterDisk, NodeDisk
from deploy.simulation.faults import Faults
from deploy.simulation.flows import SIMULATED, Simulated, records
from deploy.simulation.judge import judge
from deploy.simulation.live import LiveInput, Pace
from deploy.simulation.world import Host, World
from engine.errors import FlowError, Unavailable
from engine.loading import load_flow
from engine.messages import Bundle, Stop, encode
from engine.party import Party
from engine.plan import Plan, plan
from engine.policy import Policy, policy
from engine.reference import Item, interpret
from engine.sinks.memory import MemoryConsumer
from engine.sources import ListSource

RUN = "simulated"
EARLIER = "an earlier call of the command"
"""What it has left: how it ended, in the registry; and messages of its master, on their way."""

LAST_WORDS_S = 5.0
"""How long it may take to hear of the master's end, as in `deploy.run`."""

HEAL_AFTER_S = 60.0
"""Virtual seconds after the last fault in which the run must end."""


DRAWN = ("exactly-once",) * 4 + ("two-phase", "strong-productions") * 2 + ("at-least-once",)
"""Policies, as often as they are drawn. Another number of them would change every seed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a run depends on."""

    seed: int
    flow: Simulated
    policy: Policy
    nodes: int
    records: int
    window: int
    checkpoint_s: float
    faults: Faults
    rot: float = 0.0
    """Probability that a crashed node comes back to a damaged disk."""
    live: tuple[Pace | None, ...] = (None,)
    """For each front (they take turns) how its records come; None: all are there at once."""

    def __str__(self) -> str:
        return (
            f"{self.flow.spec} --seed {self.seed}: {self.policy.name} ({self.policy.ordering}), "
            f"{self.nodes} nodes, {'live' if any(self.live) else 'given'} input"
        )


@dataclass(slots=True)
class Outcome:
    """What came of a scenario; `problem` is empty if it is right."""

    scenario: Scenario
    problem: str = ""
    counted: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    def command(self) -> str:
        """How to run it again."""
        what = self.scenario
        return f"driftline simulate {what.flow.spec} --seed {what.seed} --policy {what.policy.name}"


def scenario(seed: int, spec: str | None = None, name: str | None = None) -> Scenario:
    """The scenario of a seed, of one flow or of all, with one policy or with all.

    Raises FlowError for a policy under which the flow has no single right outcome.
    """
    chance = Random(seed)
    simulated = _flow(seed, spec, name)
    drawn = chance.choice(DRAWN)
    ordering = chance.choice(("speculative", "speculative", "buffered"))
    chosen = policy(name or (drawn if simulated.any_order else "exactly-once"), ordering)
    if not chosen.ordered and not simulated.any_order:
        raise FlowError(
            f"{simulated.spec} cannot be simulated with {chosen.name}: what it gives may depend "
            "on the order, so there is no right outcome to compare with"
        )
    faults = _faults(chance)
    live = (_pace(chance), _pace(chance)) if chance.random() < 0.4 else (None,)
    rot = 0.2 if chance.random() < 0.5 and chosen.name == "exactly-once" else 0.0
    what = Scenario(
        seed,
        simulated,
        chosen,
        nodes=chance.choice((1, 2, 3)),
        records=chance.randrange(20, 80),
        window=chance.choice((2, 3, 5, 12, 100)),
        checkpoint_s=chance.choice((0.002, 0.005, 0.02)),
        faults=faults,
        rot=rot if not any(live) else 0.0,  # an input that is trimmed cannot begin anew
        live=live,
    )
    crash_at_end = chance.choice((0.0, 0.05, 0.2))  # drawn last: other draws stay as they were
    return replace(what, faults=replace(faults, crash_at_end=crash_at_end))


def _flow(seed: int, spec: str | None, name: str | None) -> Simulated:
    if spec is not None:
        known = {simulated.spec: simulated for simulated in SIMULATED}
        return known.get(spec, Simulated(spec, any_order=False))
    fit = [s for s in SIMULATED if s.any_order or name in (None, "exactly-once")]
    return fit[seed % len(fit)]


def _faults(chance: Random) -> Faults:
    def some(probability: float) -> float:
        return probability if chance.random() < 0.5 else 0.0  # swarm testing

    return Faults(
        until=chance.choice((0.2, 0.6, 1.5)),
        crash_at_message=some(0.002),
        crash_before_job=some(0.03),
        crash_in_job=some(0.03),
        crash_after_job=some(0.03),
        crash_before_send=some(0.002),
        crash_at_consumer=some(0.01),
        linger=some(0.8),
        job_fails=some(0.05),
        pause=some(0.001),
        cut=some(0.001),
        repeat=some(0.05),
        delay_s=chance.choice((0.0003, 0.001, 0.004)),
        slow=chance.choice((0.0, 0.02, 0.1)),
        job_s=chance.choice((0.0005, 0.004)),
    )


def _pace(chance: Random) -> Pace | None:
    if chance.random() < 0.2:
        return None
    return Pace(
        until_s=chance.choice((0.05, 0.2, 0.8)),
        bursts=chance.choice((0, 0, 3, 10)),
        sync_s=chance.choice((0.001, 0.005, 0.03)),
        skew_s=chance.choice((0.0, 0.0, 0.5)),
    )


def without_faults(what: Scenario) -> Scenario:
    """The same scenario in a world where nothing fails."""
    faults = Faults(delay_s=what.faults.delay_s, slow=what.faults.slow, job_s=what.faults.job_s)
    return replace(what, faults=faults, rot=0.0)


class SimulatedConsumer(MemoryConsumer):
    """A consumer whose items survive its crashes."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def deliver(self, bundle: Bundle) -> None:
        faults = self.world.faults
        self.world.failpoint(faults.crash_at_consumer, "before deliver")
        super().deliver(bundle)
        self.world.failpoint(faults.crash_at_consumer, "after deliver")
        if self.world.fault(faults.job_fails / 5, "failed deliver"):
            raise Unavailable("nobody knows whether it was stored")


class Simulation:
    """A scenario on its way."""

    def __init__(self, what: Scenario, trace: Callable[[str], None] | None = None) -> None:
        self.what = what
        self.chance = Random(what.seed + 1)
        try:
            self.plan: Plan = plan(load_flow(what.flow.spec))
        except FlowError as error:
            raise FlowError(f"cannot simulate: {error}") from None
        self.world = World(self.chance, what.faults, check=_validate, trace=trace)
        self.consumer = SimulatedConsumer(self.world)
        self._ids = Random(what.seed + 2)
        counted = self.world.counted
        self.disks = [NodeDisk(f"node-{i}", self.plan.flow, counted) for i in range(what.nodes)]
        self.master_disk = MasterDisk(counted)
        earlier = ClusterState(self.plan.identity(), version=1, outcome=RunOutcome(EARLIER, "", ""))
        self.master_disk.data = encode_state(earlier)
        self.inputs = [
            records(self.chance, what.records, front) for front in range(self.plan.fronts)
        ]
        self.live: dict[int, LiveInput] = {}
        self._fronts: list[Host] = []
        self._nodes: list[Host] = []
        self._asked_again = False

    def run(self) -> Outcome:
        """Let it happen and judge it."""
        what, world = self.what, self.world
        outcome = Outcome(what, counted=world.counted)
        for i, payloads in enumerate(self.inputs):
            pace = what.live[i % len(what.live)]
            if pace is not None:
                self.live[i] = LiveInput(world, f"front-{i}", pace, payloads, self.chance)
        world.add("master", self._master, self.master_disk, fixed=True)
        world.add("consumer", self._consumer, fixed=True)
        for i in range(what.nodes):
            node = world.add(f"node-{i}", self._node(i), self.disks[i], fixed=False)
            self._nodes.append(node)
        for i in range(self.plan.fronts):
            self._fronts.append(world.add(f"front-{i}", self._front(i), fixed=False))
        chance = Random(what.seed + 3)
        for host in (*self._nodes, *self._fronts):
            world.at(chance.random() * what.faults.until, partial(_stray, host))
        try:
            ended = world.run(self._ended, what.faults.until + HEAL_AFTER_S)
            outcome.problem = self._judge(ended)
        except AssertionError as error:
            outcome.problem = f"invariant broken: {error}"
        outcome.virtual_s = world.now
        return outcome

    def expected(self) -> list[Item]:
        """What the reference interpreter makes of the input; of a live one, of what was kept."""
        inputs = [
            self.live[i].records if i in self.live else list(enumerate(payloads, 1))
            for i, payloads in enumerate(self.inputs)
        ]
        return list(interpret(self.plan.flow, inputs, dead_letters=True))

    def _new_id(self) -> int:
        return self._ids.getrandbits(63) or 1

    def _master(self, process: str) -> Party:
        state = check_identity(self.master_disk.read(), self.plan.identity(), "simulated")
        what = self.what
        return Master(what.nodes, self.plan, what.policy, state, what.checkpoint_s, RUN)

    def _node(self, index: int) -> Callable[[str], Party]:
        def make(process: str) -> Party:
            if self.world.happens(self.what.rot) and self.disks[index].rot(self.chance):
                self.world.counted["rotten disk"] += 1
            node = Node(
                index,
                self.what.nodes,
                self.plan,
                self.what.policy,
                self._new_id,
                process=process,
                address=process,
                dead_letters=True,
                run=RUN,
            )
            node.addresses.update({"master": "master", "consumer": "consumer"})
            return node

        return make

    def _front(self, index: int) -> Callable[[str], Party]:
        def make(process: str) -> Party:
            live = self.live.get(index)
            front = Front(
                index,
                self.what.nodes,
                self.plan,
                self.what.policy,
                ListSource(self.inputs[index]) if live is None else live.open(),
                self._new_id,
                process=process,
                address=process,
                window=self.what.window,
                run=RUN,
            )
            front.addresses["master"] = "master"
            return front

        return make

    def _consumer(self, process: str) -> Party:
        return ConsumerServer(lambda barrier: self.consumer)

    def _ended(self) -> bool:
        """Whether the command is at its end; then it ends those who have not heard of it."""
        host = self.world.hosts["master"]
        if isinstance(host.party, Master) and host.party.broken:
            self.world.crash(host, "broken")
        if not _all_ended(self._fronts):
            if host.ended is not None and not self._asked_again:
                self._asked_again = True
                self.world.at(LAST_WORDS_S, self._ask_again)
            return False
        return host.ended is not None or _all_ended(self._nodes)

    def _ask_again(self) -> None:
        if not _all_ended(self._fronts):
            self.world.counted["asked again how it ended"] += 1
            self.world.start(self.world.hosts["master"])

    def _judge(self, ended: bool) -> str:
        host = self.world.hosts["master"]
        if not ended:
            master = host.party or host.ended
            phase = master.coordinator.phase.value if isinstance(master, Master) else "down"
            return f"not finished after {self.world.now:.1f} virtual seconds: {phase}"
        state = self.master_disk.read()
        assert state is not None
        assert state.outcome is not None, "it ended, and nobody knows how"
        for front in self._fronts:
            assert isinstance(front.ended, Front)
            assert front.ended.outcome == Stop(RUN, state.outcome.error, state.outcome.text)
        if state.outcome.error:
            return f"stopped: {state.outcome.error}: {state.outcome.text}"
        what = self.what
        return judge(what.policy, what.flow.view, self.expected(), self.consumer.by_barrier)


def _stray(host: Host) -> None:
    """What an earlier master has sent comes now."""
    if host.party is not None:
        host.party.receive(encode(("master", 0, 0), Stop(EARLIER, "", "")))


def _all_ended(hosts: list[Host]) -> bool:
    return all(host.ended is not None for host in hosts)


def _validate(party: Party) -> None:
    if isinstance(party, Node):
        party.validate()
