"""A scenario on its way: the parties of a run in a simulated world, until it has ended.

>>> Simulation(scenario(7)).run().problem
''
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from coordinator.registry import check_identity
from deploy.consumer import ConsumerServer
from deploy.front import Front
from deploy.master import Master
from deploy.node import Node
from deploy.simulation.damage import Damages
from deploy.simulation.disks import MasterDisk, NodeDisk
from deploy.simulation.faults import Crashed
from deploy.simulation.flows import records
from deploy.simulation.judge import judge
from deploy.simulation.live import LiveInput, SimulatedIntake, SimulatedProducer
from deploy.simulation.liveness import Watch, patience
from deploy.simulation.network import Network
from deploy.simulation.scenario import Scenario
from deploy.simulation.slow import slowed
from deploy.simulation.targets import (
    FailingConsumer,
    FilesTarget,
    LmdbTarget,
    MemoryTarget,
    Target,
)
from deploy.simulation.timeline import Timeline
from deploy.simulation.world import Host, World
from engine.errors import DriftlineError, FlowError
from engine.party import Party
from engine.plan import Plan, plan
from engine.reference import Item, interpret
from engine.sources import ListSource
from engine.sources.received import ReceivedSource

HEAL_AFTER_S = 300.0
"""Virtual seconds after the last fault in which the run must end."""


@dataclass(slots=True)
class Outcome:
    """What came of a scenario; `problem` is empty if it is right."""

    scenario: Scenario
    problem: str = ""
    counted: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    flow: str = ""
    """As text, for people: what was drawn by the seed of a failure."""


class Simulation:
    """The parties of a scenario, and where they are."""

    def __init__(self, what: Scenario, trace: Callable[[str], None] | None = None) -> None:
        self.what = what
        self.chance = Random(what.seed + 1)
        self._ids = Random(what.seed + 2)
        self.timeline = Timeline(self.chance, what.faults, trace=trace)
        self.counted = self.timeline.counted
        network = Network(self.timeline, self.chance, what.faults, self.counted)
        self.world = World(self.timeline, network, self._check)
        try:
            self.flow = what.flow.load(what.seed, what.policy)
            slow = (
                self.flow if what.work is None else slowed(self.flow, what.work, self.world.spend)
            )
            self.plan: Plan = plan(slow)
        except FlowError as error:
            raise FlowError(f"cannot simulate: {error}") from None
        if what.files is not None:
            self.flow.check_inputs(what.files.paths)
        self.nodes = [NodeDisk(f"node-{i}", self.flow, self.counted) for i in range(what.nodes)]
        self.registry = MasterDisk(self.counted)
        self.damages = Damages(self.timeline, self.registry)
        self.inputs = [self._records(front) for front in range(self.plan.fronts)]
        self.live: dict[int, LiveInput] = {}
        self.target: Target = MemoryTarget()

    def run(self) -> Outcome:
        """Let it happen and judge it."""
        what = self.what
        outcome = Outcome(what, counted=self.counted)
        if what.sink == "files":
            self.target = FilesTarget(self.flow, self.timeline)
        elif what.sink == "lmdb":
            self.target = LmdbTarget(self.flow)
        watch = Watch(self.world, self._progress, patience(what.policy))
        try:
            self._begin()
            watch.begin()
            ended = self.timeline.run(what.faults.until + HEAL_AFTER_S)
            outcome.problem = self._judge(ended and not watch.stalled)
        except AssertionError as error:
            outcome.problem = f"invariant broken: {error}"
        finally:
            self.target.close()
        outcome.virtual_s = self.timeline.now
        return outcome

    def expected(self) -> list[Item]:
        """What the reference interpreter makes of the input."""
        inputs = [
            self.live[i].records() if i in self.live else list(enumerate(payloads, 1))
            for i, payloads in enumerate(self.inputs)
        ]
        return list(interpret(self.flow, inputs, dead_letters=True))

    def _records(self, front: int) -> list[object]:
        what = self.what
        if what.files is not None:
            return what.files.draw(self.chance, what.records, front)
        return records(self.chance, what.records, front)

    # Who takes part.

    def _begin(self) -> None:
        what, world = self.what, self.world
        for i, payloads in enumerate(self.inputs):
            pace = what.live[i % len(what.live)]
            if pace is not None:
                self.live[i] = LiveInput(i, pace, payloads, self.chance)
        world.add("master", self._master, self.registry, fixed={"master"})
        if not what.embedded:
            world.add("consumer", self._consumer, fixed={"consumer"})
        for i in range(what.nodes):
            world.add(f"node-{i}", self._node(i), self.nodes[i])
        for i in range(self.plan.fronts):
            if i not in self.live:
                world.add(f"front-{i}", self._front(i))
                continue
            feed = self.live[i]
            world.add(f"front-{i}", self._fed_front(feed), feed.log, fixed={f"intake-{i}"})
            for name in feed.plans:
                world.add(name, self._producer(name, feed))

    def _new_id(self) -> int:
        return self._ids.getrandbits(63) or 1

    def _master(self, process: str) -> Sequence[Party]:
        what = self.what
        self.damages.may_damage(self.registry)
        state = check_identity(self.registry.read(), self.plan.identity(), "the simulation")
        return [Master(what.nodes, self.plan, what.policy, state, what.checkpoint_s)]

    def _node(self, index: int) -> Callable[[str], Sequence[Party]]:
        disk = self.nodes[index]

        def make(process: str) -> Sequence[Party]:
            self.damages.may_damage(disk)
            disk.open()
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
            if not self.what.embedded:
                return [node]
            return [node, self._consumers([f"barrier-{index}"])]

        return make

    def _consumer(self, process: str) -> Sequence[Party]:
        return [self._consumers([f"barrier-{i}" for i in range(self.what.nodes)])]

    def _consumers(self, barriers: list[str]) -> ConsumerServer:
        """The consumers of some barriers in a new process."""
        self.target.restarted(barriers, self.timeline.happens(self.what.faults.power))
        self.damages.may_damage(self.target)
        return ConsumerServer(
            lambda barrier: FailingConsumer(lambda: self.target.consumer(barrier), self.timeline)
        )

    def _front(self, index: int) -> Callable[[str], Sequence[Party]]:
        return lambda process: [self._front_of(index, process, ListSource(self.inputs[index]))]

    def _fed_front(self, feed: LiveInput) -> Callable[[str], Sequence[Party]]:
        def make(process: str) -> Sequence[Party]:
            self.damages.may_damage(feed.log)
            source = ReceivedSource(feed.log, self._clock_of(feed), feed.log.name)
            front = self._front_of(feed.front, process, source)
            return [SimulatedIntake(source, f"intake-{feed.front}"), front]

        return make

    def _front_of(self, index: int, process: str, source: ListSource | ReceivedSource) -> Front:
        front = Front(
            index,
            self.what.nodes,
            self.plan,
            self.what.policy,
            source,
            self._new_id,
            process=process,
            address=process,
            window=self.what.window,
        )
        front.addresses["master"] = "master"
        return front

    def _clock_of(self, feed: LiveInput) -> Callable[[], int]:
        return lambda: int((self.timeline.now + feed.pace.skew_s) * 1e6)

    def _producer(self, name: str, feed: LiveInput) -> Callable[[str], Sequence[Party]]:
        def make(process: str) -> Sequence[Party]:
            session = int(process.rpartition("#")[2])
            return [SimulatedProducer(name, process, session, feed, self.chance, self.counted)]

        return make

    # How it goes, and how it went.

    def _progress(self) -> object:
        """Changes whenever more is delivered, or acknowledged to a producer."""
        acknowledged = [tuple(feed.acknowledged.values()) for feed in self.live.values()]
        return self.counted["delivered bundle"], acknowledged

    def _check(self, host: Host, party: Party) -> None:
        """After each turn."""
        if isinstance(party, Node):
            party.validate()
        elif isinstance(party, Master):
            self.timeline.over |= party.stopped
            if party.broken:
                raise Crashed("broken")

    def _judge(self, ended: bool) -> str:
        if self.world.ended is not None:
            return self._judge_error(_told(self.world.ended))
        master = self.world.hosts["master"].party
        if not ended or not isinstance(master, Master):
            where = master.waits_for if isinstance(master, Master) else "the master is down"
            return f"does not get on after {self.timeline.now:.1f} virtual seconds: {where}"
        if master.coordinator.error:
            return self._judge_error(master.coordinator.error)
        for feed in self.live.values():
            if problem := feed.problem():
                return problem
        what, target = self.what, self.target
        try:
            found = target.found()
        except DriftlineError as error:
            return self._judge_error(_told(error))
        expected = [target.shows(item) for item in self.expected()]
        return judge(what.policy, what.flow.view, expected, found, target.value)

    def _judge_error(self, error: str) -> str:
        live = bool(self.live)
        if self.damages.explain(error, self.what.policy, given_input=not live):
            self.counted["stopped because of damage"] += 1
            return ""
        return f"stopped: {error}"


def _told(error: DriftlineError) -> str:
    """An error as the one who stops a run tells it."""
    return f"{type(error).__name__}: {error}"
