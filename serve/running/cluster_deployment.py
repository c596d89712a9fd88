"""A service on a cluster: agents run the master and the nodes of its flow; this host runs front,
journal and views.

To the cluster, the service is an agent with one front and no slots: it has an agent's record in
ZooKeeper. A separate thread renews that record and watches the desired state of the flow. It also
runs the guide, from which the front gets the master's address. So the front never waits for
ZooKeeper.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from driftline.coordinator.registry import ClusterState, RunOutcome
from driftline.deploy.cluster.agent import Registration, record_of
from driftline.deploy.cluster.flow_runner import AgentSettings, FlowGuide, process_config
from driftline.deploy.cluster.records import AgentRole, DesiredState, Submission
from driftline.deploy.cluster.status import find_problems, key_mismatch
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    RunReplaced,
    find_submission,
    has_ended,
    list_agents,
)
from driftline.deploy.cluster.zookeeper_tree import NAMES, POLL_EVERY_S, ZooKeeperTree, is_name
from driftline.deploy.local.inputs.input_progress import InputProgress
from driftline.deploy.local.report import find_start_time
from driftline.deploy.roles.front import Front
from driftline.deploy.runtime.config import SESSION_S, ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.errors import (
    Disconnected,
    DriftlineError,
    FlowError,
    InUse,
    StateMismatch,
    Unavailable,
)
from driftline.engine.events import FailureLog, event_fields, log
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import Plan
from driftline.engine.policy import POLICIES
from driftline.engine.wire.kinds import AGENT
from driftline.serve.running.deployment import SHUTDOWN_TIMEOUT_S, Deployment, ServiceOptions
from driftline.serve.running.directories import POLICY
from driftline.serve.running.session import SessionStart, journal_network

STEP_WAIT_S = 0.25
"""Longest wait in seconds before the thread handles a change in ZooKeeper."""

CONFIRM_END_S = 0.3
"""Seconds in which the front confirms the end, so that the master need not wait for its timeout."""


class ServiceCluster(Struct, frozen=True):
    """The cluster of a service, and the name of the service in the cluster.

    `network`: of this host's processes; `session_s`: a master's session timeout in seconds;
    `journal_key`: the file with the journal's key; `wheel`: the wheel of the flow, if any.
    """

    tree: ZooKeeperTree
    name: str
    network: TransportConfig
    session_s: float = SESSION_S
    journal_key: Path | None = None
    wheel: Path | None = None

    def deploy(
        self, options: ServiceOptions, flow: Flow, flow_plan: Plan, sockets: Path, stack: ExitStack
    ) -> Deployment:
        """Submit or resume the flow. Return its deployment: agents run its master and nodes.

        Precondition: `check` has not raised. Raises InUse, StateMismatch, Unavailable,
        NotPermitted.
        """
        tree, state = self.tree, options.state
        sinks = tuple(sink.name for sink in flow.sinks)
        journal = journal_network(self.network, self.journal_key, sinks)
        record = record_of(self.name, (AgentRole.FRONT,), 0, self.network, state)
        registration = Registration(tree, record)
        try:
            registration.publish()
        except InUse:
            raise registration.name_taken_error() from None
        stack.callback(registration.end)
        start = SessionStart(tree, self.name, journal, self.wheel)
        submission = start.begin(options, flow, sockets)
        registry_state = tree.registry(self.name).read()
        layout, level = submission.current_layout(registry_state), log.getEffectiveLevel()
        host = AgentSettings(self.name, state, sockets, self.network, self.session_s, level)
        process = process_config(submission, layout, host, tree, sockets)
        thread = _ClusterThread(tree, submission, registration, process)
        stack.callback(thread.end)
        process = replace(process, guide=thread.guide)
        journal = replace(journal, known=process.network.known)
        return _ClusterDeployment(process, journal, thread, registry_state)

    def check(self) -> None:
        """Check the name and the network.

        Raises FlowError for an invalid name; Unavailable if keys do not let the agents' processes
        communicate with the processes of this host.
        """
        if not is_name(self.name):
            raise FlowError(f"{self.name!r} cannot be the name of a service: {NAMES}")
        network, agents = self.network, list_agents(self.tree)
        problem = key_mismatch(network, agents)
        keyless = ", ".join(agent.name for agent in agents if not agent.public)
        if not problem and keyless and network.scheme == "tcp" and network.keys:
            problem = (
                f"agents {keyless} have no keys: give --bind and --keys to all agents, or omit "
                "--keys everywhere"
            )
        if problem:
            raise Unavailable(f"nodes could not reach this service: {problem}")


class _ClusterDeployment:
    """Deployment whose master and nodes are run by agents."""

    def __init__(
        self,
        process: ProcessConfig,
        journal: TransportConfig,
        thread: _ClusterThread,
        registry_state: ClusterState | None,
    ) -> None:
        self.process = process
        self.journal = journal
        self._thread = thread
        self._registry_state = registry_state
        self._ended_at = 0.0
        """When an outcome other than a cancellation was first seen (monotonic); 0: not yet."""

    def start(self, runtime: Runtime, front: Front, stack: ExitStack) -> None:
        self._runtime = runtime
        assert self._registry_state is not None
        start_time = find_start_time(self._registry_state, POLICIES[POLICY], 0, front.source)
        progress = InputProgress(front, front.source, start_time)
        front.more_figures = lambda: {"lag_ms": int(progress.read_figures(front.now).lag_s * 1000)}
        self._thread.start()

    @property
    def stop_request(self) -> str:
        return self._thread.stop_request

    @property
    def wait_reason(self) -> str:
        return self._thread.wait_reason

    @property
    def outcome(self) -> RunOutcome | None:
        """The outcome of the flow. A cancellation appears at once: no master sends it to the front.

        A master sends any other outcome to the front. So it appears here `SHUTDOWN_TIMEOUT_S`
        late, in case that message was lost.
        """
        outcome = self._thread.outcome
        if outcome is None or outcome.error == CANCELLED:
            return outcome
        self._ended_at = self._ended_at or monotonic()
        return outcome if monotonic() > self._ended_at + SHUTDOWN_TIMEOUT_S else None

    def supervise(self, now: float) -> None:
        if self._thread.error is not None:
            raise self._thread.error

    def finish(self) -> None:
        deadline = monotonic() + CONFIRM_END_S
        while monotonic() < deadline:
            self._runtime.step(wait_s=0.05)


class _ClusterThread(threading.Thread):
    """Thread that works with ZooKeeper, so that the front does not wait for it."""

    def __init__(
        self,
        tree: ZooKeeperTree,
        submission: Submission,
        registration: Registration,
        config: ProcessConfig,
    ) -> None:
        super().__init__(name="cluster", daemon=True)
        self.stop_request = ""
        """The command that has requested the flow to stop; "": none."""
        self.outcome: RunOutcome | None = None
        """The outcome of the run according to the registry; None while it runs."""
        self.error: DriftlineError | None = None
        """The error that ends the service."""
        self._tree = tree
        self._submission = submission
        self._registration = registration
        self._runtime = Runtime(transport=config.transport())
        self._is_ending = False
        self._has_changes = threading.Event()
        """Set when ZooKeeper has reported a change."""
        self._outage = FailureLog("cluster-unavailable")
        self._logged_reasons: set[str] = set()
        """Reasons why the flow does not run, as of the last check."""
        self.wait_reason = ""
        """The known reasons why the flow does not run, or why ZooKeeper cannot be read, as text;
        "": none."""
        try:
            parts = tree, submission.name, self._runtime, config.inbox(AGENT)
            self._flow_guide = FlowGuide(*parts)
        except BaseException:
            self._runtime.close(linger_ms=0)
            raise
        self.guide = self._flow_guide.address
        """The address of the guide, from which the front gets the master's address."""

    def end(self) -> None:
        """Stop the thread, and close its guide and runtime."""
        self._is_ending = True
        if self.is_alive():
            self._runtime.call_soon_threadsafe(lambda: None)
            self.join()
        self._flow_guide.close()
        self._runtime.close(linger_ms=0)

    def run(self) -> None:
        """Run until `end`; store an error in `error`."""
        try:
            self._run()
        except DriftlineError as error:
            self.error = error
        except BaseException as error:
            fields = event_fields("crashed", error=type(error).__name__)
            text = "an unexpected error ends the thread that works with ZooKeeper"
            log.critical(text, exc_info=True, extra=fields)
            self.error = Unavailable(f"an unexpected error: {error!r}; see the lines above")

    def _run(self) -> None:
        self._tree.on_change(self._has_changes.set)
        next_check_at, more = 0.0, False
        while not self._is_ending:
            now = monotonic()
            if self._has_changes.is_set() or now >= next_check_at:
                self._has_changes.clear()
                next_check_at = now + POLL_EVERY_S
                self._check(now)
            more = self._runtime.step(more, wait_s=STEP_WAIT_S)

    def _check(self, now: float) -> None:
        """Renew the agent's record, and read the flow's state. Raises InUse, RunReplaced."""
        name = self._submission.name
        try:
            self._tree.restore_ephemerals()
            self._registration.publish()
            found, state = find_submission(self._tree, name), self._tree.registry(name).read()
            agents = list_agents(self._tree)
        except InUse:
            # The ZooKeeper session was lost, and another process has taken the name.
            raise self._registration.name_taken_error() from None
        except Disconnected as error:  # the client has logged it; the processes keep running
            self.wait_reason = str(error)
            return
        except (Unavailable, StateMismatch) as error:
            self.wait_reason = str(error)
            self._outage.record_failure(now, f"{error}; running processes continue; retrying")
            return
        self._outage.record_success(now, f"{self._tree.where} can be reached again")
        if found is None or found[0].run != self._submission.run:
            raise RunReplaced(name)
        submission = found[0]
        if state is not None and has_ended(state, self._submission):
            self.outcome = state.outcome
        elif submission.desired_state is DesiredState.STOP:
            self.stop_request = "driftline stop"
        problems = find_problems(submission, submission.current_layout(state), agents)
        self._log_wait_reasons(set(problems))

    def _log_wait_reasons(self, reasons: set[str]) -> None:
        """Log each reason why the flow does not run, when it begins and when it ends."""
        name = self._submission.name
        for text in sorted(reasons - self._logged_reasons):
            log.warning(
                "flow %s waits: %s", name, text, extra=event_fields("flow-waits", reason=text)
            )
        for text in sorted(self._logged_reasons - reasons):
            fields = event_fields("flow-waits-over", reason=text)
            log.info("flow %s no longer waits: %s", name, text, extra=fields)
        self._logged_reasons = reasons
        self.wait_reason = "; ".join(sorted(reasons))
