"""A scenario: what one seed simulates, and whether the outcome is the only right one.

For exactly-once the items that the consumer holds, per barrier, must be the sequence that the
reference interpreter gives, restricted to the labels of that barrier: nothing lost, nothing
twice, nothing in another order, no item that the reference does not have (Delivery, consistency,
and determinism, Definition 6, with equality).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from coordinator.registry import check_identity
from deploy.consumer import ConsumerServer
from deploy.front import Front
from deploy.loading import load_flow
from deploy.master import Master
from deploy.node import Node
from deploy.simulation.disks import MasterDisk, NodeDisk
from deploy.simulation.flows import SIMULATED, Simulated, records
from deploy.simulation.world import Faults, World
from engine.bundles import from_blob
from engine.codec import pack
from engine.errors import FlowError
from engine.messages import Bundle
from engine.party import Party
from engine.plan import Plan, plan
from engine.policy import Policy, policy
from engine.reference import Item, run_reference
from engine.sinks.consumer import Last
from engine.snapshots import merge
from engine.sources import ListSource

HEAL_AFTER_S = 60.0
"""Virtual seconds after the last fault in which the run must end."""


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

    def __str__(self) -> str:
        return (
            f"{self.flow.spec} --seed {self.seed}: {self.policy.name} ({self.policy.ordering}), "
            f"{self.nodes} nodes"
        )


@dataclass(slots=True)
class Outcome:
    """What came of a scenario; `problem` is empty if it is right."""

    scenario: Scenario
    problem: str = ""
    counted: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0


def scenario(seed: int, spec: str | None = None, name: str | None = None) -> Scenario:
    """The scenario of a seed, of one flow or of all, with one policy or with all."""
    chance = Random(seed)
    simulated = chance.choice(SIMULATED)
    if spec is not None:
        known = {s.spec: s for s in SIMULATED}
        simulated = known.get(spec, Simulated(spec, None))
    names = ("exactly-once",) * 5 + ("two-phase",) * 3 + ("at-least-once",)
    drawn = chance.choice(names)
    ordering = chance.choice(("speculative", "speculative", "buffered"))
    if name is None and not simulated.any_order:
        drawn = "exactly-once"  # without an order there is nothing to compare with
    chosen = policy(name or drawn, ordering)

    def some(probability: float) -> float:
        return probability if chance.random() < 0.5 else 0.0  # swarm testing

    faults = Faults(
        until=chance.choice((0.5, 2.0)),
        crash_at_message=some(0.003),
        crash_before_job=some(0.04),
        crash_in_job=some(0.04),
        crash_after_job=some(0.04),
        crash_before_send=some(0.003),
        job_fails=some(0.05),
        cut=some(0.002),
        delay_s=chance.choice((0.0005, 0.002, 0.01)),
        slow=chance.choice((0.0, 0.05, 0.2)),
    )
    return Scenario(
        seed,
        simulated,
        chosen,
        nodes=chance.choice((1, 2, 3)),
        records=chance.randrange(5, 40),
        window=chance.choice((2, 5, 100)),
        checkpoint_s=chance.choice((0.005, 0.02, 0.1)),
        faults=faults,
        rot=some(0.2) if chosen.cut is not None and chosen.name == "exactly-once" else 0.0,
    )


class KeptConsumer:
    """A consumer whose items survive its crashes."""

    def __init__(self) -> None:
        self.items: dict[str, list[Item]] = {}
        self._last: dict[str, Last] = {}

    def deliver(self, bundle: Bundle) -> None:
        """Keep items and t_last together."""
        found = self.items.setdefault(bundle.barrier, [])
        found += [item for blob in bundle.blobs for item in from_blob(blob)]
        self._last[bundle.barrier] = Last(bundle.t_last, bundle.checksum, bundle.blobs)

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle."""
        return self._last.get(barrier, Last(-1, 0, ()))

    def close(self) -> None:
        """Nothing to release."""


class Simulation:
    """A scenario on its way."""

    def __init__(self, what: Scenario) -> None:
        self.what = what
        self.chance = Random(what.seed + 1)
        try:
            self.plan: Plan = plan(load_flow(what.flow.spec))
        except FlowError as error:
            raise FlowError(f"cannot simulate: {error}") from None
        self.world = World(self.chance, what.faults, check=_validate)
        self.consumer = KeptConsumer()
        self.inputs = [
            records(self.chance, what.records, front) for front in range(self.plan.fronts)
        ]
        self._ids = Random(what.seed + 2)
        self.disks = [
            NodeDisk(f"node-{i}", lambda parts: merge(self.plan.flow, parts))
            for i in range(what.nodes)
        ]
        self.master_disk = MasterDisk()

    def run(self) -> Outcome:
        """Let it happen and judge it."""
        what, world = self.what, self.world
        outcome = Outcome(what, counted=world.counted)
        world.add("master", self._master, self.master_disk, fixed=True)
        world.add("consumer", self._consumer, fixed=True)
        for i in range(what.nodes):
            world.add(f"node-{i}", self._node(i), self.disks[i], fixed=False)
        for i in range(self.plan.fronts):
            world.add(f"front-{i}", self._front(i), fixed=False)
        try:
            ended = world.run(self._stopped, what.faults.until + HEAL_AFTER_S)
            outcome.problem = self._judge(ended)
        except AssertionError as error:
            outcome.problem = f"invariant broken: {error}"
        outcome.virtual_s = world.now
        return outcome

    def _new_id(self) -> int:
        return self._ids.getrandbits(63) or 1

    def _master(self, process: str) -> Party:
        state = check_identity(self.master_disk.read(), self.plan.identity(), "simulated")
        return Master(self.what.nodes, self.plan, self.what.policy, state, self.what.checkpoint_s)

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
            )
            node.addresses.update({"master": "master", "consumer": "consumer"})
            return node

        return make

    def _front(self, index: int) -> Callable[[str], Party]:
        def make(process: str) -> Party:
            front = Front(
                index,
                self.what.nodes,
                self.plan,
                self.what.policy,
                ListSource(self.inputs[index]),
                self._new_id,
                process=process,
                address=process,
                window=self.what.window,
            )
            front.addresses["master"] = "master"
            return front

        return make

    def _consumer(self, process: str) -> Party:
        return ConsumerServer(lambda barrier: self.consumer)

    def _stopped(self) -> bool:
        host = self.world.hosts["master"]
        if isinstance(host.party, Master) and host.party.broken:
            self.world.crash(host, "broken")
        return isinstance(host.party, Master) and host.party.stopped

    def _judge(self, ended: bool) -> str:
        master = self.world.hosts["master"].party
        if not ended or not isinstance(master, Master):
            phase = master.coordinator.phase if isinstance(master, Master) else "down"
            return f"not finished after {self.world.now:.1f} virtual seconds: {phase}"
        if master.coordinator.error:
            return f"stopped: {master.coordinator.error}"
        expected = list(run_reference(self.plan.flow, self.inputs, dead_letters=True))
        return judge(self.what, expected, self.consumer.items)


def judge(what: Scenario, expected: list[Item], found: dict[str, list[Item]]) -> str:
    """What is wrong with the items of a consumer; empty if nothing is."""
    if what.policy.ordered:
        return _judge_sequence(expected, found)
    everything = [item for items in found.values() for item in items]
    wanted, got = (Counter(item.label for item in items) for items in (expected, everything))
    if what.policy.name == "at-least-once":
        return f"lost {len(wanted - got)} items" if set(wanted) - set(got) else ""
    if wanted != got:
        return f"lost {(wanted - got).total()} items, {(got - wanted).total()} too many"
    if what.flow.view is not None:
        views = (Counter(pack(what.flow.view(i.value)) for i in x) for x in (expected, everything))
        if next(views) != next(views):
            return "other items than the reference has"
    return ""


def _judge_sequence(expected: list[Item], found: dict[str, list[Item]]) -> str:
    for barrier, items in found.items():
        labels = [item.label for item in items]
        if labels != sorted(labels):
            return f"{barrier} delivered out of order"
    merged = sorted((i for items in found.values() for i in items), key=lambda item: item.label)
    ordered = sorted(expected, key=lambda item: item.label)
    for want, got in zip(ordered, merged, strict=False):
        if (want.label, want.sink, pack(want.value)) != (got.label, got.sink, pack(got.value)):
            return f"expected {want}, found {got}"
    if len(merged) != len(ordered):
        return f"{len(merged)} items instead of {len(ordered)}"
    return ""


def without_faults(what: Scenario) -> Scenario:
    """The same scenario in a world where nothing fails."""
    return replace(what, faults=Faults(delay_s=what.faults.delay_s), rot=0.0)


def _validate(party: Party) -> None:
    if isinstance(party, Node):
        party.validate()
