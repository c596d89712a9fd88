"""A cluster in this process and in virtual time, made of the classes of a real one.

Nodes, master, fronts and consumer server exchange messages in the wire format, as processes do, in
a simulated world without faults (`simulation.world`). Only `Cluster.kill` makes a process fail.
Snapshots are in memory. Virtual time jumps from event to event, so no call waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from driftline.connectors.sinks import Consumer
from driftline.coordinator.registry import ClusterState, check_identity
from driftline.deploy.node.backpressure import TurnBudget
from driftline.deploy.node.node import Node
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.master import Master
from driftline.engine.errors import DriftlineError, FlowError, Unavailable, error_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Policy
from driftline.engine.sources import BadRecord, RetainedSource, Source
from driftline.engine.wire.messages import Stop
from driftline.engine.wire.role import Role
from driftline.simulation.world.disks import MasterDisk, NodeDisk
from driftline.simulation.world.network import Network
from driftline.simulation.world.timeline import Crashed, Faults, Timeline
from driftline.simulation.world.world import SimulatedHost, World

RUN = "in one process"
"""The run id of all runs of a `Cluster`; other runs have a random id."""

NO_PROGRESS_TIMEOUT_S = 600.0
"""A run fails after this many virtual seconds plus ten snapshot intervals without progress. User
functions take no virtual time, so a slow function does not fail the run."""

OnBad = Callable[[Sequence[BadRecord]], None]
"""Function to call with bad records that a front has set aside."""


class Cluster:
    """The roles of a run. They work only during `step`, `run_until` and `pass_time`."""

    def __init__(
        self,
        flow: Flow,
        sources: Sequence[Source | RetainedSource],
        consumer: Callable[[str], Consumer],
        policy: Policy,
        *,
        nodes: int = 1,
        snapshot_interval_s: float = 1.0,
        dead_letters: bool = False,
        on_bad: Sequence[OnBad | None] = (),
        delay_s: float = 1e-5,
        seed: int = 0,
    ) -> None:
        """Set up the roles.

        `consumer`: opens the consumer of a barrier, by its name; `on_bad`: for each source, a
        function to call with its bad records, or None to end the run at the first one; `delay_s`:
        average virtual time of a message or a job. Raises FlowError for a flow that cannot run.
        """
        flow.check_nodes(nodes)
        flow.check_policy(policy)
        self.policy = policy
        self.rng = Random(seed)
        self.error: DriftlineError | None = None
        """The error that ended the run, if any."""
        self.is_over = False
        """Whether all sources have ended and all outputs are delivered."""
        self._is_stepping = False
        """Whether `step` is processing an event, which may call a function of the flow."""
        faults = Faults(delay_s=delay_s, slow=0.0, job_s=delay_s)
        self._timeline = Timeline(self.rng, faults)
        network = Network(self._timeline, self.rng, faults, self._timeline.counted)
        self._world = World(self._timeline, network, self._after_turn, lambda host: None)
        self._flow = flow
        self._plan = make_plan(flow)
        self._node_count = nodes
        self._sources = list(sources)
        self._open_consumer = consumer
        self._snapshot_interval_s = snapshot_interval_s
        self.no_progress_timeout_s = NO_PROGRESS_TIMEOUT_S + 10 * snapshot_interval_s
        self._dead_letters = dead_letters
        self._on_bad = [*on_bad, *[None] * len(self._sources)]
        self._disks = [NodeDisk(f"node-{i}", flow, self._timeline.counted) for i in range(nodes)]
        self._registry = MasterDisk(self._timeline.counted)
        world = self._world
        world.add("master", self._master, self._registry, fixed={"master"})
        world.add("consumer", self._consumer, fixed={"consumer"})
        self._nodes = [
            world.add(f"node-{i}", self._node_maker(i), disk) for i, disk in enumerate(self._disks)
        ]
        self._fronts = [
            world.add(f"front-{i}", self._front_maker(i)) for i in range(len(self._sources))
        ]

    # Actions.

    def step(self) -> None:
        """Process the next event. Raises the error that ended the run, now or earlier."""
        if self._is_stepping:
            raise FlowError("a function of the flow calls the run or the test that it is part of")
        if self.error is None:
            self._is_stepping = True
            try:
                self._timeline.step()
            finally:
                self._is_stepping = False
            self.error = self.error or self._world.fatal_error
        if self.error is not None:
            raise self.error

    def run_until(self, done: Callable[[], bool]) -> None:
        """Process events until `done` returns true.

        Raises the error that ended the run, and Unavailable if the run makes no progress.
        """
        patience = Patience(self)
        while not done():
            self.step()
            patience.check()

    def pass_time(self, seconds: float) -> None:
        """Process the events of the next `seconds` of virtual time. Raises the errors of `step`."""
        until = self._timeline.now + seconds
        while self._timeline.now < until and not self.is_over:
            self.step()

    def kill(self, name: str) -> None:
        """Kill a process as kill -9 does; it restarts after a short virtual time.

        Raises FlowError if no process has this name.
        """
        hosts = self._world.hosts
        if name not in hosts:
            raise FlowError(f"there is no process {name!r} to kill; there are {', '.join(hosts)}")
        if hosts[name].roles:
            self._world.crash(hosts[name], "killed")

    def wake_fronts(self) -> None:
        """Let the fronts read their sources again: there may be new records."""
        for front in self._fronts:
            if front.roles:
                self._world.turn_soon(front)

    def close(self) -> None:
        """Close the consumers, and release all roles and their sources."""
        for role in self._world.hosts["consumer"].roles.values():
            if isinstance(role, ConsumerServer):
                role.close()
        self._timeline.clear()
        for host in self._world.hosts.values():
            host.roles.clear()

    # State.

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._timeline.now

    @property
    def nodes(self) -> list[Node]:
        """The nodes that run or have ended normally; a killed node is missing until it restarts."""
        roles = [host.role or host.ended_role for host in self._nodes]
        return [role for role in roles if isinstance(role, Node)]

    @property
    def delivered(self) -> int:
        """The delivered frontier: the consumer has all outputs below this time.

        0 while a node is down; under an unordered policy, 0 until the run is over.
        """
        if self.is_over:
            return INFINITY
        nodes = self.nodes
        if not self.policy.ordered or len(nodes) < self._node_count:
            return 0
        return min(node.barrier.delivered for node in nodes)

    def is_settled(self, time: int) -> bool:
        """Return whether all elements up to a time are processed, and their outputs delivered."""
        if self.is_over:
            return True
        master, nodes = self._world.hosts["master"].role, self.nodes
        if not isinstance(master, Master) or master.tracker is None:
            return False
        if len(nodes) < self._node_count:
            return False
        if not all(node.running and node.incarnation == master.incarnation for node in nodes):
            return False
        if self.policy.ordered:
            return self.delivered > time
        return master.tracker.processed > time and all(node.barrier.all_stored for node in nodes)

    @property
    def progress(self) -> object:
        """A value that changes whenever the run makes progress."""
        return self.delivered, self.records_read, [node.steps for node in self.nodes]

    @property
    def records_read(self) -> int:
        """The number of records that the fronts have read."""
        fronts = [host.role or host.ended_role for host in self._fronts]
        return sum(front.sent_records for front in fronts if isinstance(front, Front))

    @property
    def late_elements(self) -> int:
        """The number of late elements that no sink receives, as of the newest snapshot."""
        state = self._registry.read()
        return 0 if state is None else state.late_elements

    @property
    def waits_for(self) -> str:
        """A description of what the run waits for."""
        master = self._world.hosts["master"].role
        return master.waits_for if isinstance(master, Master) else "the master is down"

    # The roles.

    def _new_id(self) -> int:
        return self.rng.getrandbits(63) or 1

    def _master(self, process: str) -> Sequence[Role]:
        before = self._registry.read() or ClusterState(self._plan.identity())
        state = check_identity(before, self._plan.identity(), RUN)
        arguments = self._node_count, self._plan, self.policy, state, self._snapshot_interval_s, RUN
        return [Master(*arguments, session=1)]

    def _consumer(self, process: str) -> Sequence[Role]:
        return [ConsumerServer(self._open_consumer)]

    def _node_maker(self, index: int) -> Callable[[str], Sequence[Role]]:
        def make(process: str) -> Sequence[Role]:
            self._disks[index].open()
            node = Node(
                index,
                self._node_count,
                self._plan,
                self.policy,
                self._new_id,
                process=process,
                address=process,
                dead_letters=self._dead_letters,
                run=RUN,
                budget=TurnBudget(self._plan, lambda: self._world.clock),
            )
            node.addresses.update({"master": "master", "consumer": "consumer"})
            return [node]

        return make

    def _front_maker(self, index: int) -> Callable[[str], Sequence[Role]]:
        def make(process: str) -> Sequence[Role]:
            front = Front(
                index,
                self._node_count,
                self._plan,
                self.policy,
                self._sources[index],
                self._new_id,
                process=process,
                address=process,
                on_bad=self._on_bad[index],
                run=RUN,
            )
            front.addresses["master"] = "master"
            return [front]

        return make

    def _after_turn(self, host: SimulatedHost, role: Role) -> None:
        if isinstance(role, Master) and role.broken:
            raise Crashed("broken")
        if isinstance(role, ConsumerServer) and role.problems:
            # Do not let the barrier retry: virtual time does not wait for the consumer to recover.
            self.error = self.error or Unavailable(next(iter(role.problems.values())))
        if isinstance(role, Front) and role.outcome is not None:
            self._end(role.outcome)

    def _end(self, outcome: Stop) -> None:
        if outcome.error:
            self.error = self.error or error_of(outcome.error, outcome.text)
        else:
            self.is_over = True


class Patience:
    """Detector of a run without progress, so that its caller does not wait forever."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._deadline = 0.0
        self._last_progress: object = None

    def check(self) -> None:
        """Raise Unavailable if the run has made no progress for `no_progress_timeout_s`."""
        cluster = self._cluster
        if cluster.now > self._deadline:
            if cluster.progress == self._last_progress:
                raise Unavailable(f"the run makes no progress: {cluster.waits_for}")
            self._deadline = cluster.now + cluster.no_progress_timeout_s
            self._last_progress = cluster.progress
