"""The interface to a service's master and nodes, and a deployment that runs them as children."""

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
from driftline.engine.wire.kinds import POLLER
from driftline.serve.gateway.server import ListenAddress
from driftline.serve.gateway.service import ServiceBackend
from driftline.serve.hosting.config import ViewSpec
from driftline.serve.running.directories import POLICY, open_service

SERVICE_FILE = "service.json"
"""The file that marks the state directory of a service on a cluster."""

SHUTDOWN_TIMEOUT_S = 5.0
"""Timeout in seconds, at shutdown, for each of these: running requests, the master's message with
the outcome, and the exit of the nodes."""


class ServiceOptions(Struct, frozen=True):
    """The options of a service, as its command gives them."""

    flow: str
    """The name of the flow, from which each process loads it."""
    views: tuple[ViewSpec, ...]
    app: Callable[[ServiceBackend], ASGIApp]
    """Factory of the HTTP application."""
    state: Path
    """The state directory."""
    listen_address: ListenAddress
    """The address of the HTTP server."""
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
    """Whether to continue although the code of operators has changed."""


class Deployment(Protocol):
    """The processes of a service's master and nodes, for one session."""

    process: ProcessConfig
    """The configuration of the flow's processes and of this process, which runs the front."""
    journal: TransportConfig
    """The network through which nodes reach the journal."""

    @property
    def outcome(self) -> RunOutcome | None:
        """The outcome of the session, if the deployment knows it and no master has sent it to the
        front; else None."""

    @property
    def stop_request(self) -> str:
        """The command that has requested to drain and stop, for the log; "": none."""

    def start(self, runtime: Runtime, front: Front, stack: ExitStack) -> None:
        """Start master and nodes; the stack stops them. `runtime`: drives `front`."""

    @property
    def wait_reason(self) -> str:
        """The known reasons why the flow does not run, as text; "": none."""

    def supervise(self, now: float) -> None:
        """Do the supervision that is due. Raises DriftlineError if the service cannot continue."""

    def finish(self) -> None:
        """Run the runtime a little longer, so that the other processes learn of the end."""


Deploy = Callable[[ServiceOptions, Flow, Plan, Path, ExitStack], Deployment]
"""Function that prepares the deployment of a service's flow.

The path is the folder for sockets; the stack closes the resources that the function opens. Raises
StateMismatch, Unavailable and other DriftlineErrors.
"""


def deploy_locally(
    options: ServiceOptions, flow: Flow, flow_plan: Plan, sockets: Path, stack: ExitStack
) -> Deployment:
    """Open the state, and return a deployment with master and nodes as child processes.

    Raises FlowError, StateMismatch, Unavailable.
    """
    if (options.state / SERVICE_FILE).exists():
        if (options.state / "registry").exists():
            raise StateMismatch(
                f"{options.state} contains both the registry of a service on this machine and the "
                f"{SERVICE_FILE} of a service on a cluster: one of them was probably copied there. "
                f"Remove the one that does not belong there, usually {SERVICE_FILE}"
            )
        raise StateMismatch(
            f"{options.state} is the state directory of a service on a cluster: give --zookeeper, "
            "or another --state"
        )
    nodes = options.nodes or 1
    flow.check_nodes(nodes)
    accept = options.accept_changed_code
    state = open_service(options.state, flow, flow_plan, options.nodes, accept_changed_code=accept)
    process = ProcessConfig(
        flow=options.flow,
        nodes=nodes,
        layout=state.layout,
        policy=POLICY,
        ordering="speculative",
        snapshot_interval_s=options.snapshot_interval_s,
        state=str(options.state),
        sockets=str(sockets),
        poller_address=f"ipc://{sockets}/{POLLER}",
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
    return _LocalDeployment(process)


class _LocalDeployment:
    """Deployment whose master and nodes are children of this process."""

    journal = LOCAL
    outcome: RunOutcome | None = None
    stop_request = wait_reason = ""

    def __init__(self, process: ProcessConfig) -> None:
        self.process = process
        self._status_poller = StatusPoller()

    def start(self, runtime: Runtime, front: Front, stack: ExitStack) -> None:
        self._runtime, self._front = runtime, front
        self._status_poller.address = runtime.add(self._status_poller, self.process.address(POLLER))
        self._status_poller.addresses["master"] = self.process.address("master")
        self._cluster = stack.enter_context(LocalCluster(self.process))
        self._cluster.wake(runtime)

    def supervise(self, now: float) -> None:
        if self._cluster.is_due(now):
            self._cluster.supervise(
                self._front.completed, self._front.max_sent_time, self._status_poller
            )

    def finish(self) -> None:
        deadline = monotonic() + SHUTDOWN_TIMEOUT_S
        while not self._cluster.nodes_ended and monotonic() < deadline:
            self._runtime.step(wait_s=0.05)
            self._cluster.supervise()
