"""Deployments of a service's master and nodes, and the local one, with child processes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Protocol

from msgspec import Struct
from starlette.types import ASGIApp

from driftline.coordinator.registry import RunOutcome
from driftline.deploy.local.config import LOCAL_ONLY, SenderRules
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.cpu_affinity import cores_here
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.errors import StateMismatch
from driftline.engine.events import log
from driftline.engine.flow.code import code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import Plan
from driftline.serve.gateway.server import Listening
from driftline.serve.gateway.service import ServiceBackend
from driftline.serve.hosting.config import ViewSpec
from driftline.serve.running.directories import POLICY, open_service

WATCH = "watch"

SERVICE_FILE = "service.json"
"""The file that marks the state directory of a service on a cluster."""

ENDS_WITHIN_S = 5.0
"""Timeout at shutdown for running requests, and for the last messages of the master."""


class Serving(Struct, frozen=True):
    """The configuration of a service."""

    flow: str
    """The name of the flow, from which each process loads it."""
    views: tuple[ViewSpec, ...]
    app: Callable[[ServiceBackend], ASGIApp]
    """Factory of the HTTP application."""
    state: Path
    """The state directory."""
    listening: Listening
    producers: str = ""
    """The ZeroMQ address for producers; "": a socket in a private folder, for local producers."""
    sender_rules: SenderRules = LOCAL_ONLY
    """Which producers may send, if `producers` is set."""
    nodes: int | None = None
    """Number of nodes; None: the current number, initially one."""
    snapshot_interval_s: float = 1.0
    """Seconds between snapshots of the flow."""
    retained_bytes: int | None = None
    """Size limit of the journal (`ServiceConfig.retained_bytes`)."""
    accept_changed_code: bool = False


class Deployment(Protocol):
    """The processes of a service's master and nodes, for one session."""

    process: ProcessConfig
    """The configuration of the flow's processes and of this process, which runs the front."""
    journal: TransportConfig
    """The network through which nodes reach the journal."""

    @property
    def outcome(self) -> RunOutcome | None:
        """The outcome of the session if it is known, but was not sent to the front."""

    @property
    def stop_request(self) -> str:
        """The command that has requested to drain and stop, for the log; "": none."""

    def start(self, runtime: Runtime, front: Front, stack: ExitStack) -> None:
        """Start master and nodes; the stack stops them. `runtime`: drives `front`."""

    @property
    def wait_reason(self) -> str:
        """The known reason why the flow does not run, as text; "": none."""

    def supervise(self, now: float) -> None:
        """Do the supervision that is due. Raises DriftlineError if the service cannot continue."""

    def finish(self) -> None:
        """Run the loop until the other processes have learned that the session has ended."""


Deploy = Callable[[Serving, Flow, Plan, Path, ExitStack], Deployment]
"""Function that prepares the deployment of a service's flow; the stack closes what it opens.

The path is the folder for sockets. Raises StateMismatch, Unavailable and other errors.
"""


def deploy_locally(
    serving: Serving, flow: Flow, flow_plan: Plan, sockets: Path, stack: ExitStack
) -> Deployment:
    """Open the state, and return a deployment with master and nodes as child processes.

    Raises FlowError, StateMismatch, Unavailable.
    """
    if (serving.state / SERVICE_FILE).exists():
        if (serving.state / "registry").exists():
            raise StateMismatch(
                f"{serving.state} has a registry, so it is of a service on this machine, but it "
                f"has {SERVICE_FILE}, too, which only a service on a cluster has: it was probably "
                "copied there. Remove it, unless it is the registry that does not belong there"
            )
        raise StateMismatch(
            f"{serving.state} is of a service on a cluster: give --zookeeper, or another --state"
        )
    nodes = serving.nodes or 1
    flow.check_nodes(nodes)
    given = serving.state, flow, flow_plan, nodes
    state = open_service(*given, accept_changed_code=serving.accept_changed_code)
    process = ProcessConfig(
        flow=serving.flow,
        nodes=nodes,
        layout=state.layout,
        policy=POLICY,
        ordering="speculative",
        snapshot_interval_s=serving.snapshot_interval_s,
        state=str(serving.state),
        sockets=str(sockets),
        watch_address=f"ipc://{sockets}/{WATCH}",
        identity=state.identity,
        code=code_of(flow).text,
        run=secrets.token_hex(8),
        dead_letters=True,
        lineage=state.lineage,
        session=state.last_session + 1,
        journal=True,
        log_level=log.getEffectiveLevel(),
        cores=cores_here(),
    )
    return _OnThisMachine(process)


class _OnThisMachine:
    """Deployment whose master and nodes are children of this process."""

    journal = LOCAL
    outcome: RunOutcome | None = None
    stop_request = wait_reason = ""

    def __init__(self, process: ProcessConfig) -> None:
        self.process = process
        self._watch = StatusPoller()

    def start(self, runtime: Runtime, front: Front, stack: ExitStack) -> None:
        self._runtime, self._front = runtime, front
        self._watch.address = runtime.add(self._watch, self.process.address(WATCH))
        self._watch.addresses["master"] = self.process.address("master")
        self._cluster = stack.enter_context(LocalCluster(self.process))
        self._cluster.wake(runtime)

    def supervise(self, now: float) -> None:
        if self._cluster.is_due(now):
            self._cluster.supervise(self._front.completed, self._front.furthest, self._watch)

    def finish(self) -> None:
        until = monotonic() + ENDS_WITHIN_S
        while not self._cluster.nodes_ended and monotonic() < until:
            self._runtime.step(wait_s=0.05)
            self._cluster.supervise()
