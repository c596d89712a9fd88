"""Runs a scenario: the roles of a run in a simulated world, from their start to the verdict.

>>> from driftline.simulation.scenarios.scenario import draw_scenario
>>> Simulation(draw_scenario(7)).run().problem
''
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from msgspec import Struct, field

from driftline.connectors.logs.received import ReceivedSource
from driftline.connectors.sinks.lines import JsonLines
from driftline.coordinator.draining import ENDED_ON_REQUEST
from driftline.coordinator.registry import ClusterState, RunOutcome, check_identity, encode_state
from driftline.deploy.node.backpressure import WAITING_BYTES, TurnBudget
from driftline.deploy.node.node import Node
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.master import Master
from driftline.engine.errors import DriftlineError, FlowError, PayloadError
from driftline.engine.flow.plan import Plan, make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.reference import interpret
from driftline.engine.sources import ListSource
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Stop, encode
from driftline.engine.wire.role import Role
from driftline.simulation.agents import RescaleDriver, Supervision
from driftline.simulation.masters import Masters
from driftline.simulation.scenarios.disturbances import with_slow_functions
from driftline.simulation.scenarios.flows import records
from driftline.simulation.scenarios.live import LiveInput, SimulatedIntake, SimulatedProducer
from driftline.simulation.scenarios.scenario import Scenario
from driftline.simulation.targets import (
    FailingConsumer,
    FilesTarget,
    LmdbTarget,
    MemoryTarget,
    Target,
)
from driftline.simulation.verdict import (
    HANDOVER_S,
    STALL_TIMEOUT_S,
    Damages,
    ProgressChecker,
    judge,
)
from driftline.simulation.world.disks import MasterDisk, NodeDisk
from driftline.simulation.world.network import Network
from driftline.simulation.world.timeline import Crashed, Timeline
from driftline.simulation.world.world import SimulatedHost, World

RUN, NEXT = "simulated", "simulated, the next run"
"""Ids of the simulated run, and of the run that continues it after a drain."""
SESSIONS = {RUN: 1, NEXT: 2}
"""Run -> number of its session."""
EARLIER = "an earlier call of the command"
"""Id of an earlier run. Its outcome is in the registry, and its master's messages are in flight."""

RESTART_MASTER_AFTER_S = 5.0
"""If a front still runs, an ended master is restarted after this many seconds, as
`deploy.local.run.drive` does after its `END_TIMEOUT_S`."""

END_TIMEOUT_S = 10000.0
"""Virtual seconds after the last fault within which the run must end. The limit is high, because
out-of-order elements make slow functions run repeatedly."""


class Outcome(Struct):
    """Outcome of a scenario; `problem`: a sentence, "" if the outcome is correct."""

    scenario: Scenario
    problem: str = ""
    counted: Counter[str] = field(default_factory=Counter)
    """How often each kind of event happened."""
    virtual_s: float = 0.0
    flow: str = ""
    """The flow as text, if the seed drew it and failed."""


class Simulation:
    """The roles of a scenario, on the hosts of a simulated world.

    `trace`: called with each line of the trace. Raises FlowError for a flow that cannot run.
    """

    def __init__(self, scenario: Scenario, trace: Callable[[str], None] | None = None) -> None:
        self.rng = Random(scenario.seed + 1)
        self._ids = Random(scenario.seed + 2)
        self.timeline = Timeline(self.rng, scenario.faults, trace=trace)
        self.counted = self.timeline.counted
        network = Network(self.timeline, self.rng, scenario.faults, self.counted)
        self.world = World(self.timeline, network, self._check, self._process_ended)
        try:
            self.flow = scenario.flow.load(scenario.seed, scenario.policy)
            self.scenario = scenario = scenario.with_nodes_up_to(self.flow.groups)
            slow_functions = scenario.slow_functions
            flow = self.flow
            if slow_functions is not None:
                flow = with_slow_functions(flow, slow_functions, self.world.extend_turn)
            self.plan: Plan = make_plan(flow)
        except FlowError as error:
            raise FlowError(f"cannot simulate: {error}") from None
        self.node_disks: dict[int, NodeDisk] = {}
        """Number of a node -> its disk, for all nodes so far."""
        self.registry = MasterDisk(self.counted)
        earlier = ClusterState(self.plan.identity(), version=1, outcome=RunOutcome(EARLIER, "", ""))
        self.registry.data = encode_state(earlier)
        self._front_hosts: list[SimulatedHost] = []
        self.damages = Damages(self.timeline, self.registry)
        self.inputs = [self._records(front) for front in range(self.plan.fronts)]
        """The records of each front."""
        self.live: dict[int, LiveInput] = {}
        """Front -> its live input."""
        self.target: Target = MemoryTarget()
        self._run = RUN
        self.masters = Masters(
            self.world, self.registry, self._make_master, standby=scenario.standby
        )
        self.rescales = RescaleDriver(self.world, self.masters, self.registry, self._add_node)
        self.waiting_bytes = 0
        """The largest size of outputs, in bytes, that have waited for the consumer at one node."""

    def run(self) -> Outcome:
        """Run the scenario to its end, and judge the outcome. Call it once."""
        scenario = self.scenario
        outcome = Outcome(scenario, counted=self.counted)
        if scenario.sink == "files" and self._fits_json():
            self.target = FilesTarget(self.flow, self.timeline)
        elif scenario.sink == "lmdb":
            self.target = LmdbTarget(self.flow)
        handovers = len({partition.at_s for partition in scenario.partitions})
        checker = ProgressChecker(
            self.world, self._progress, STALL_TIMEOUT_S + handovers * HANDOVER_S
        )
        try:
            self._begin()
            last_arrivals = (schedule.until_s for schedule in scenario.live if schedule is not None)
            checker.begin(max([scenario.faults.until_s, *last_arrivals]))
            has_ended = self.timeline.run(scenario.faults.until_s + END_TIMEOUT_S)
            outcome.problem = self._judge(has_ended and not checker.is_stalled)
        except AssertionError as error:
            outcome.problem = f"invariant broken: {error}"
        finally:
            self.target.close()
        outcome.virtual_s = self.timeline.now
        return outcome

    def expected(self) -> list[Item]:
        """Return the outputs of the reference interpreter. Live inputs are read from their logs."""
        inputs = [
            self.live[i].records() if i in self.live else list(enumerate(payloads, 1))
            for i, payloads in enumerate(self.inputs)
        ]
        return list(interpret(self.flow, inputs, dead_letters=True, unended=self.live))

    def _fits_json(self) -> bool:
        """Return whether JSON can represent all outputs: a user's flow may output bytes or NaN."""
        lines = JsonLines(self.flow)
        try:
            for item in self.expected():
                lines.format(item)
        except PayloadError:
            return False
        return True

    def _records(self, front: int) -> list[object]:
        scenario = self.scenario
        if scenario.files is not None:
            return scenario.files.draw(self.flow, self.rng, scenario.records, front)
        return records(self.rng, scenario.records, front)

    # Hosts and their roles.

    def _begin(self) -> None:
        scenario, world = self.scenario, self.world
        for i, payloads in enumerate(self.inputs):
            schedule = scenario.live[i % len(scenario.live)]
            # Without records the input cannot be live: an intake refuses END from such producers.
            if schedule is not None and payloads:
                self.live[i] = LiveInput(i, schedule, payloads, self.rng)
        self.masters.begin(lambda: self.damages.maybe_damage(self.registry))
        if not scenario.embedded:
            world.add("consumer", self._make_consumer_roles, fixed={"consumer"})
        for i in range(scenario.nodes):
            self._add_node(i)
        for i in range(self.plan.fronts):
            if i not in self.live:
                self._front_hosts.append(world.add(f"front-{i}", self._front_factory(i)))
                continue
            feed = self.live[i]
            make = self._live_front_factory(feed)
            self._front_hosts.append(world.add(f"front-{i}", make, feed.log, fixed={f"intake-{i}"}))
            for name in feed.plans:
                world.add(name, self._producer_factory(name, feed))
        rng = Random(scenario.seed + 3)
        if scenario.drain_at_s is not None:
            self.timeline.at_time(scenario.drain_at_s, self._drain)
        if scenario.hangs:
            Supervision(world).begin(scenario.hangs)
        self.rescales.begin(scenario.rescale_requests)
        for partition in scenario.partitions:
            world.network.schedule_partition(partition)
        for host in (*self._node_hosts, *self._front_hosts):
            delay = rng.random() * scenario.faults.until_s
            self.timeline.after(delay, partial(_receive_stray_stop, host))

    def _add_node(self, index: int) -> SimulatedHost:
        disk = self.node_disks[index] = NodeDisk(f"node-{index}", self.flow, self.counted)
        return self.world.add(disk.kv.name, self._node_factory(index), disk)

    @property
    def _node_hosts(self) -> list[SimulatedHost]:
        """The hosts of the layout's nodes."""
        layout = self.rescales.layout or range(self.scenario.nodes)
        return [self.world.hosts[f"node-{index}"] for index in layout]

    @property
    def _master_address(self) -> str:
        """The master's address as a member knows it at its start."""
        return "" if self.scenario.standby else "master"

    def _new_id(self) -> int:
        return self._ids.getrandbits(63) or 1

    def _make_master(self, process: str, registry_state: ClusterState | None) -> Master:
        scenario = self.scenario
        state = check_identity(registry_state, self.plan.identity(), "the simulation")
        return Master(
            scenario.nodes,
            self.plan,
            scenario.policy,
            state,
            scenario.snapshot_interval_s,
            self._run,
            process=process,
            session=SESSIONS[self._run],
        )

    def _node_factory(self, index: int) -> Callable[[str], Sequence[Role]]:
        disk, slow_consumer = self.node_disks[index], self.scenario.slow_consumer

        def make(process: str) -> Sequence[Role]:
            self.damages.maybe_damage(disk)
            disk.open()
            node = Node(
                index,
                self.scenario.nodes,
                self.plan,
                self.scenario.policy,
                self._new_id,
                process=process,
                address=process,
                dead_letters=True,
                run=self._run,
                budget=TurnBudget(self.plan, lambda: self.world.clock),
                waiting_bytes=slow_consumer.waiting_bytes if slow_consumer else WAITING_BYTES,
                reports_progress=self.scenario.policy.ordered and not self.scenario.embedded,
            )
            node.addresses.update({"master": self._master_address, "consumer": "consumer"})
            if not self.scenario.embedded:
                return [node]
            return [node, self._make_consumer_server([f"barrier-{index}"])]

        return make

    def _make_consumer_roles(self, process: str) -> Sequence[Role]:
        return [self._make_consumer_server([f"barrier-{i}" for i in self.node_disks])]

    def _make_consumer_server(self, barriers: list[str]) -> ConsumerServer:
        """Return the consumer server of these barriers, for a new process."""
        self.target.handle_restart(barriers, self.timeline.happens(self.scenario.faults.power))
        self.damages.maybe_damage(self.target)
        return ConsumerServer(
            lambda barrier: FailingConsumer(
                lambda: self.target.consumer(barrier), self.timeline, self._pause_consumer
            )
        )

    def _pause_consumer(self) -> None:
        """Pause the consumers after a stored bundle, if the scenario makes them slow."""
        slow_consumer, now = self.scenario.slow_consumer, self.timeline.now
        if slow_consumer is not None and now < slow_consumer.until_s:
            self.world.hosts["consumer"].paused_until = now + slow_consumer.seconds
            self.counted["slow consumer"] += 1

    def _front_factory(self, index: int) -> Callable[[str], Sequence[Role]]:
        return lambda process: [self._make_front(index, process, ListSource(self.inputs[index]))]

    def _live_front_factory(self, feed: LiveInput) -> Callable[[str], Sequence[Role]]:
        def make(process: str) -> Sequence[Role]:
            self.damages.maybe_damage(feed.log)
            event_time = self.plan.flow.sources[feed.front].event_time
            clock = self._clock_of(feed)
            source = ReceivedSource(feed.log, clock, feed.log.name, event_time=event_time)
            front = self._make_front(feed.front, process, source)
            return [front, SimulatedIntake(source, f"intake-{feed.front}")]

        return make

    def _make_front(self, index: int, process: str, source: ListSource | ReceivedSource) -> Front:
        front = Front(
            index,
            self.scenario.nodes,
            self.plan,
            self.scenario.policy,
            source,
            self._new_id,
            process=process,
            address=process,
            window=self.scenario.window,
            run=self._run,
        )
        front.addresses["master"] = self._master_address
        if self._is_draining:
            front.drain()
        return front

    def _clock_of(self, feed: LiveInput) -> Callable[[], int]:
        return lambda: int((self.timeline.now + feed.schedule.skew_s) * 1e6)

    def _producer_factory(self, name: str, feed: LiveInput) -> Callable[[str], Sequence[Role]]:
        def make(process: str) -> Sequence[Role]:
            session = int(process.rpartition("#")[2])
            return [SimulatedProducer(name, process, session, feed, self.rng, self.counted)]

        return make

    # Progress and verdict.

    def _progress(self) -> object:
        """Return a value that changes with each delivered bundle, acknowledged record, ended
        process and new run."""
        acknowledged = [tuple(feed.acknowledged.values()) for feed in self.live.values()]
        ended = [host.ended_role is not None for host in self.world.hosts.values()]
        return self.counted["delivered bundle"], acknowledged, ended, self._run

    def _check(self, host: SimulatedHost, role: Role) -> None:
        """Check the invariants of a node after its turn; crash a master that must be replaced."""
        if isinstance(role, Node):
            role.validate()
            self.waiting_bytes = max(self.waiting_bytes, role.barrier.waiting_bytes)
            self.counted["back-pressure on an input"] += role.backpressure.is_paused
        elif self.masters.is_broken(host, role):
            raise Crashed("broken")

    def _process_ended(self, host: SimulatedHost) -> None:
        """Handle the normal end of a process.

        While a front runs, restart an ended master after `RESTART_MASTER_AFTER_S`. The run is over
        once all fronts have ended, and also a master or all nodes. If it was drained, start the
        next run; otherwise end the simulation.
        """
        if not _all_ended(self._front_hosts):
            if host in self.masters.hosts:
                self.timeline.after(RESTART_MASTER_AFTER_S, self._restart_masters)
        elif self.masters.has_ended or _all_ended(self._node_hosts):
            state = self.registry.read()
            if state is not None and state.outcome == RunOutcome(self._run, "", ENDED_ON_REQUEST):
                self._start_next_run(state)
            else:
                self.timeline.is_over = True

    @property
    def _is_draining(self) -> bool:
        at = self.scenario.drain_at_s
        return self._run == RUN and at is not None and self.timeline.now >= at

    def _drain(self) -> None:
        """Drain all running fronts; `_make_front` drains a front that starts later."""
        self.counted["drain requested"] += 1
        for host in self._front_hosts:
            if isinstance(host.role, Front) and self._run == RUN:
                host.role.drain()
                self.world.turn_soon(host)

    def _start_next_run(self, state: ClusterState) -> None:
        """Start the next run. The first run was drained, so the next one replays nothing."""
        self.counted["drained run continued"] += 1
        fronts = [
            host.ended_role for host in self._front_hosts if isinstance(host.ended_role, Front)
        ]
        # If a file was not read to its end, live fronts keep their later records for the next run
        # (`Draining`).
        no_open_file = all(front.live or front.next >= INFINITY for front in fronts)
        for front, offset in zip(fronts, state.snapshots[0].offsets, strict=True):
            if no_open_file or not front.live:
                assert front.max_sent_time < offset, (
                    f"{front.name} sent time {front.max_sent_time}, but the last snapshot resumes "
                    f"at {offset}"
                )
        self._run = NEXT
        self.masters.restart_all()
        for index in self.node_disks:
            self.world.end(self.world.hosts[f"node-{index}"])
        for host in (*self._node_hosts, *self._front_hosts):
            self.world.restart(host)

    def _restart_masters(self) -> None:
        if not _all_ended(self._front_hosts) and self.masters.restart_ended():
            self.counted["ended master restarted"] += 1

    def _judge(self, has_ended: bool) -> str:
        """Return the first problem of the run as a sentence; "" if the outcome is correct."""
        if self.world.fatal_error is not None:
            return self._judge_error(_as_text(self.world.fatal_error))
        if not has_ended:
            reason, now = self.masters.waits_for, self.timeline.now
            return f"makes no progress after {now:.1f} virtual seconds: {reason}"
        state = self.registry.read()
        assert state is not None
        assert state.outcome is not None, "the run ended, but the registry has no outcome"
        for front in self._front_hosts:
            assert isinstance(front.ended_role, Front)
            assert front.ended_role.outcome == Stop(
                self._run, state.outcome.error, state.outcome.text
            )
        if state.outcome.error:
            return self._judge_error(f"{state.outcome.error}: {state.outcome.text}")
        for feed in self.live.values():
            if problem := feed.problem():
                return problem
        scenario, target = self.scenario, self.target
        try:
            delivered = target.delivered()
        except DriftlineError as error:
            return self._judge_error(_as_text(error))
        expected = [target.as_stored(item) for item in self.expected()]
        return judge(scenario.policy, scenario.flow.projection, expected, delivered, target.value)

    def _judge_error(self, error: str) -> str:
        if self.damages.excuses(error, self.scenario.policy, given_input=not self.live):
            self.counted["stopped because of damage"] += 1
            return ""
        return f"stopped: {error}"


def _receive_stray_stop(host: SimulatedHost) -> None:
    """Deliver a `Stop` by the master of an earlier run; the host must ignore it."""
    if host.role is not None:
        host.role.receive(encode(("master", 0, 0), Stop(EARLIER, "", "")))


def _all_ended(hosts: list[SimulatedHost]) -> bool:
    return all(host.ended_role is not None for host in hosts)


def _as_text(error: DriftlineError) -> str:
    """Return an error in the form of `RunOutcome`: its name and its text."""
    return f"{type(error).__name__}: {error}"
