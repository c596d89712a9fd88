"""Runner of one flow's processes on one host, in a thread of an agent.

The agent passes the submission and the names of the flow's processes on this host. While the thread
runs, the agent sets flags; when it has ended, the agent reads from the runner's attributes how the
flow ended here. Like the command of a local run, the thread contains the supervisor of the
processes and the `StatusPoller` that the supervisor uses. It also contains the guide, which sends
the processes the master's address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from driftline.connectors.outputs import resolve_output
from driftline.deploy.cluster.records import Submission
from driftline.deploy.cluster.wheels import fetch_wheel
from driftline.deploy.cluster.zookeeper_tree import FLOWS, ZooKeeperTree
from driftline.deploy.roles.guide import FindLeader, Guide
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import SESSION_S, ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.deploy.runtime.supervision.supervisor import CHILD_POLL_S, CannotStart
from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.keygroups import Layout
from driftline.engine.wire.kinds import AGENT, CONSUMER, POLLER
from driftline.engine.wire.role import IOJob


class AgentSettings(Struct, frozen=True):
    """Settings of an agent that apply to all its flows."""

    agent: str
    """Name of the agent."""
    state: Path
    """State directory of the agent; it contains a directory for each flow."""
    sockets: Path
    """Folder in which each runner creates a folder for sockets."""
    network: TransportConfig = LOCAL
    session_s: float = SESSION_S
    """Timeout of the ZooKeeper sessions of the flows' masters and fronts, in seconds."""
    log_level: int = 0
    metrics: str = ""
    """Metrics address of the agent's processes, each at a free port: `HOST:0`; "": none."""


def process_config(
    submission: Submission, layout: Layout, host: AgentSettings, tree: ZooKeeperTree, sockets: Path
) -> ProcessConfig:
    """Return the configuration of a flow's processes on this host.

    `sockets`: a folder for their sockets, which this function creates if it does not exist.

    Raises Unavailable or StateMismatch if the flow's wheel cannot be fetched.
    """
    sockets.mkdir(mode=0o700, exist_ok=True)
    paths: tuple[str, ...] = ()
    network = host.network
    if submission.wheel:
        paths = (str(fetch_wheel(tree, submission.name, submission.wheel, host.state / "wheels")),)
    state = host.state / FLOWS / submission.name
    output = sink = ""
    if submission.consumer:
        network = replace(network, known=(*network.known, (CONSUMER, submission.consumer)))
    else:
        resolved = resolve_output(submission.output, state)
        output, sink = str(resolved.directory), resolved.address
    return ProcessConfig(
        flow=submission.flow,
        nodes=submission.initial_nodes,
        layout=layout,
        policy=submission.policy,
        ordering=submission.ordering,
        snapshot_interval_s=submission.snapshot_interval_s,
        state=str(state),
        sockets=str(sockets),
        identity=submission.identity,
        code=submission.code,
        run=submission.run,
        dead_letters=submission.dead_letters,
        lineage=submission.lineage,
        session=submission.session,
        output=output,
        sink=sink,
        journal=bool(submission.consumer),
        limits=submission.limits,
        paths=paths,
        log_level=host.log_level,
        metrics=host.metrics,
        submitted_as=submission.name,
        network=network,
        zookeeper=f"{tree.zookeeper}/{FLOWS}/{submission.name}",
        session_s=host.session_s,
        reading=submission.reading,
        initial_state=submission.initial_state,
    )


class FlowGuide:
    """Guide of a flow, and the queue of masters in which it finds the leader.

    `runtime`: the runtime to which the guide is added; `inbox`: the address at which it listens.
    """

    def __init__(self, tree: ZooKeeperTree, flow: str, runtime: Runtime, inbox: str) -> None:
        self.guide = Guide()
        self.address = runtime.add(self.guide, inbox, self._execute_job)
        self.masters = tree.masters(
            flow, lambda: runtime.call_soon_threadsafe(self.guide.on_queue_changed)
        )

    def close(self) -> None:
        """Close the queue of masters."""
        self.masters.close()

    def _execute_job(self, job: IOJob) -> object:
        assert isinstance(job, FindLeader)
        return self.masters.leader()


PROCESS_MODULE = "driftline.deploy.cluster.front"
"""Module that the processes of a flow run: `deploy.runtime.process`, and fronts as well."""

FLOW_THREAD = "flow "
"""Prefix of the names of flow threads."""

EXIT_TIMEOUT_S = 5.0
"""Once the flow is over, the runner waits this many seconds for its processes to exit."""


class FlowRunner(threading.Thread):
    """Thread that runs the processes `names` of a flow."""

    def __init__(
        self,
        submission: Submission,
        names: Sequence[str],
        layout: Layout,
        host: AgentSettings,
        tree: ZooKeeperTree,
        number: int,
        on_all_ended: Callable[[], None],
    ) -> None:
        """Create the thread; it is not started.

        `number`: unique among the flow runners of this agent. `on_all_ended`: called repeatedly if
        all processes have ended although the flow is not known to be over, so that the agent reads
        the registry.
        """
        super().__init__(name=f"{FLOW_THREAD}{submission.name}", daemon=True)
        self.submission = submission
        """Set by the agent: the newest version of the submission."""
        self.draining = False
        """Set by the agent: whether the flow is to drain and stop."""
        self.stop_requested = threading.Event()
        """Set by the agent to end the processes at once."""
        self.flow_ended = False
        """Set by the agent: whether the registry has the run's outcome; the processes should end
        within EXIT_TIMEOUT_S."""
        self.rescale_failed = False
        """Whether a rescaling was given up because a node of the next layout does not start
        here."""
        self.is_done = False
        """Whether the flow is over, and its processes have ended or EXIT_TIMEOUT_S has passed."""
        self.transient_error = ""
        """Why the thread ended, if the agent is to retry the flow; else ""."""
        self.fatal_error = ""
        """Why the flow has failed: a retry would not help; "" if it has not."""
        self.created_at = monotonic()
        """Time of creation (seconds, monotonic)."""
        self.cluster: LocalCluster | None = None
        """The supervisor of the processes, once they run. Other threads may read its names."""
        self.sockets = str(host.sockets / str(number))
        """Folder of the sockets of the processes."""
        self._names = list(names)
        self._layout = layout
        self._on_all_ended = on_all_ended
        self._host = host
        self._tree = tree

    def run(self) -> None:
        """Run until the flow is over, the agent sets `stop_requested`, or an error occurs."""
        try:
            with ExitStack() as stack:
                self._run(stack)
        except Unavailable as error:
            self.transient_error = str(error)
        except DriftlineError as error:
            self.transient_error = f"{type(error).__name__}: {error}"
        except BaseException as error:
            fields = event_fields("crashed", error=type(error).__name__)
            log.critical("an unexpected error", exc_info=True, extra=fields)
            self.transient_error = (
                f"an unexpected error: {error!r}; see the log of agent {self._host.agent}"
            )

    def _run(self, stack: ExitStack) -> None:
        sockets = Path(self.sockets)
        config = process_config(self.submission, self._layout, self._host, self._tree, sockets)
        runtime = Runtime(transport=config.transport())
        stack.callback(runtime.close, linger_ms=0)
        flow_guide = FlowGuide(self._tree, self.submission.name, runtime, config.inbox(AGENT))
        stack.callback(flow_guide.close)
        poller = StatusPoller(name=f"{POLLER}-{self._host.agent}")
        poller.address = runtime.add(poller, config.inbox(POLLER))
        flow_guide.guide.addresses[poller.name] = poller.address
        config = replace(
            config,
            guide=flow_guide.address,
            poller_address=poller.address,
            poller_name=poller.name,
        )
        cluster = stack.enter_context(
            LocalCluster(
                config,
                names=self._names,
                module=PROCESS_MODULE,
                accepts_node=self._is_placed_here,
                on_crash=flow_guide.masters.forget,
            )
        )
        self.cluster = cluster
        cluster.wake(runtime)
        try:
            self._supervise(runtime, cluster, flow_guide, poller)
        except CannotStart:
            raise
        except Unavailable as error:  # processes crash repeatedly: a retry would not help
            self.fatal_error = str(error)

    def _supervise(
        self, runtime: Runtime, cluster: LocalCluster, flow_guide: FlowGuide, poller: StatusPoller
    ) -> None:
        guide, requested = flow_guide.guide, (0, 0)
        give_up_at: float | None = None
        has_more = False
        while not self.stop_requested.is_set():
            has_more = runtime.step(has_more, wait_s=CHILD_POLL_S)
            now = monotonic()
            guide.draining = self.draining
            if not cluster.is_due(now):
                continue
            desired = self.submission.desired_nodes, self.submission.first_desired_node
            if desired != requested:
                requested = desired
                cluster.rescale(*requested)
            cluster.supervise(
                poller.master_figure("delivered"), poller.master_figure("reached"), poller
            )
            self.rescale_failed = cluster.desired_nodes != requested[0]
            guide.retain_members([*cluster.pids, poller.name])
            if self.flow_ended:
                give_up_at = give_up_at or now + EXIT_TIMEOUT_S
                if cluster.ended or now >= give_up_at:
                    self.is_done = True
                    return
            elif cluster.ended and cluster.pids:
                self._on_all_ended()

    def _is_placed_here(self, node: str) -> bool:
        """Return whether the submission assigns a node to this agent."""
        return self.submission.agent_of(int(node.removeprefix("node-"))) == self._host.agent
