"""Runner of one flow's processes on one host, in a thread of an agent.

Takes: the submission, which of its processes run here, and the flags that the agent sets. Gives:
how the flow ended here. The thread contains what a local run has in its command: the supervisor of
the processes, the guide that sends them the master's address, and the watch that detects hanging
processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from driftline.connectors.outputs import place_of
from driftline.deploy.cluster.records import Submission
from driftline.deploy.cluster.wheels import fetch
from driftline.deploy.cluster.zookeeper_tree import FLOWS, ZooKeeperTree
from driftline.deploy.roles.guide import FindLeader, Guide
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import SESSION_S, ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.deploy.runtime.supervision.supervisor import LOOK_EVERY_S, CannotStart
from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.events import about, log
from driftline.engine.keygroups import Layout
from driftline.engine.wire.kinds import AGENT, CONSUMER, WATCH
from driftline.engine.wire.role import DurableJob


@dataclass(frozen=True, slots=True)
class HostResources:
    """Resources of an agent's host for flows."""

    agent: str
    state: Path
    sockets: Path
    network: TransportConfig = LOCAL
    session_s: float = SESSION_S
    log_level: int = 0
    metrics: str = ""
    """Metrics address of its processes, each at a free port: `HOST:0`; "": none."""


def process_config(
    given: Submission, layout: Layout, host: HostResources, tree: ZooKeeperTree, sockets: Path
) -> ProcessConfig:
    """Return the configuration of a flow's processes. `sockets`: the folder to create for sockets.

    Raises Unavailable, StateMismatch if its wheel cannot be fetched.
    """
    sockets.mkdir(mode=0o700, exist_ok=True)
    paths: tuple[str, ...] = ()
    network = host.network
    if given.wheel:
        paths = (str(fetch(tree, given.name, given.wheel, host.state / "wheels")),)
    state = host.state / FLOWS / given.name
    output = sink = ""
    if given.consumer:
        network = replace(network, known=(*network.known, (CONSUMER, given.consumer)))
    else:
        place = place_of(given.output, state)
        output, sink = str(place.directory), place.address
    return ProcessConfig(
        flow=given.flow,
        nodes=given.count,
        layout=layout,
        policy=given.policy,
        ordering=given.ordering,
        checkpoint_s=given.checkpoint_s,
        state=str(state),
        sockets=str(sockets),
        identity=given.identity,
        code=given.code,
        run=given.run,
        dead_letters=given.dead_letters,
        lineage=given.lineage,
        session=given.session,
        output=output,
        sink=sink,
        journal=bool(given.consumer),
        limits=given.limits,
        paths=paths,
        log_level=host.log_level,
        metrics=host.metrics,
        submitted_as=given.name,
        network=network,
        zookeeper=f"{tree.zookeeper}/{FLOWS}/{given.name}",
        session_s=host.session_s,
        reading=given.reading,
        beginning=given.beginning,
    )


class Guiding:
    """Guide of a flow in a runtime of this process, and the queue of masters that it queries."""

    def __init__(self, tree: ZooKeeperTree, flow: str, runtime: Runtime, inbox: str) -> None:
        self.guide = Guide()
        self.address = runtime.add(self.guide, inbox, self._carry_out)
        self.masters = tree.masters(flow, lambda: runtime.soon(self.guide.noticed))

    def close(self) -> None:
        """Close the queue of masters."""
        self.masters.close()

    def _carry_out(self, job: DurableJob) -> object:
        assert isinstance(job, FindLeader)
        return self.masters.leader()


FRONT_MODULE = "driftline.deploy.cluster.front"

FLOW_THREAD = "flow "
"""Prefix of the names of flow threads."""

_MEMBERS = "node-", "front-"
"""Prefixes of the names of nodes and fronts."""

END_S = 5.0
"""Seconds that processes may take to end once the flow is over."""


class FlowRunner(threading.Thread):
    """Thread that runs the processes `names` of a flow."""

    def __init__(
        self,
        submission: Submission,
        names: Sequence[str],
        layout: Layout,
        host: HostResources,
        tree: ZooKeeperTree,
        number: int,
        changed: Callable[[], None],
    ) -> None:
        """Create the thread; it is not started.

        `number`: unique among the flow runners of this agent; `changed` is called while all
        processes have ended, so that the agent finds out why.
        """
        super().__init__(name=f"{FLOW_THREAD}{submission.name}", daemon=True)
        self.submission = submission
        """The agent replaces it when it changes."""
        self.draining = False
        """Set by the agent: the flow is to drain and stop."""
        self.leaving = threading.Event()
        """Set by the agent: the processes end at once."""
        self.knows_end = False
        """Set by the agent: the flow is over, and its processes should end soon."""
        self.keeps = False
        """Whether the flow keeps its nodes because a node of the next layout does not start
        here."""
        self.over = False
        """Whether the flow is over and its processes had time to end."""
        self.trouble = ""
        """Why the flow cannot run here for now."""
        self.failed = ""
        """Why the flow cannot continue at all."""
        self.since = monotonic()
        """Time of creation (seconds, monotonic)."""
        self.cluster: LocalCluster | None = None
        """The processes, once started. Other threads may read their names from it."""
        self.sockets = str(host.sockets / str(number))
        """Folder of their sockets."""
        self._names = list(names)
        self._layout = layout
        self._changed = changed
        self._host = host
        self._tree = tree

    def run(self) -> None:
        """Run until the flow is over or the agent sets `leaving`."""
        try:
            with ExitStack() as stack:
                self._run(stack)
        except Unavailable as error:
            self.trouble = str(error)
        except DriftlineError as error:
            self.trouble = f"{type(error).__name__}: {error}"
        except BaseException as error:
            told = about("died", error=type(error).__name__)
            log.critical("an unexpected error", exc_info=True, extra=told)
            self.trouble = (
                f"an unexpected error: {error!r}; see the log of agent {self._host.agent}"
            )

    def _run(self, stack: ExitStack) -> None:
        sockets = Path(self.sockets)
        config = process_config(self.submission, self._layout, self._host, self._tree, sockets)
        runtime = Runtime(transport=config.transport())
        stack.callback(runtime.close, linger_ms=0)
        guiding = Guiding(self._tree, self.submission.name, runtime, config.inbox(AGENT))
        stack.callback(guiding.close)
        watch = StatusPoller(name=f"{WATCH}-{self._host.agent}")
        watch.address = runtime.add(watch, config.inbox(WATCH))
        guiding.guide.addresses[watch.name] = watch.address
        at = guiding.address, watch.address, watch.name
        config = replace(config, guide=at[0], watch=at[1], watch_name=at[2])
        cluster = stack.enter_context(
            LocalCluster(
                config,
                self.submission.spares if self._have_spares else 0,
                names=self._names,
                front_module=FRONT_MODULE,
                takes=self._takes,
                died=guiding.masters.forget,
            )
        )
        self.cluster = cluster
        cluster.wake(runtime)
        try:
            self._supervise(runtime, cluster, guiding, watch)
        except CannotStart:
            raise
        except Unavailable as error:  # its processes crash repeatedly: a retry would not help
            self.failed = str(error)

    @property
    def _have_spares(self) -> bool:
        """Whether to keep spares for the processes here; a master has standbys instead."""
        return any(name.startswith(_MEMBERS) for name in self._names)

    def _supervise(
        self, runtime: Runtime, cluster: LocalCluster, guiding: Guiding, watch: StatusPoller
    ) -> None:
        guide, wanted = guiding.guide, (0, 0)
        give_up_at: float | None = None
        more = False
        while not self.leaving.is_set():
            more = runtime.step(more, wait_s=LOOK_EVERY_S)
            now = monotonic()
            guide.draining = self.draining
            if not cluster.is_due(now):
                continue
            if (wish := (self.submission.wanted, self.submission.wanted_from)) != wanted:
                wanted = wish
                cluster.resize(*wanted)
            cluster.supervise(watch.figure("delivered"), watch.figure("reached"), watch)
            self.keeps = cluster.wanted != wanted[0]
            guide.keep([*cluster.pids, watch.name])
            if self.knows_end:
                give_up_at = give_up_at or now + END_S
                if cluster.ended or now >= give_up_at:
                    self.over = True
                    return
            elif cluster.ended and cluster.pids:
                self._changed()

    def _takes(self, node: str) -> bool:
        """Return whether a node is to run here."""
        return self.submission.place_of(int(node.removeprefix("node-"))) == self._host.agent
