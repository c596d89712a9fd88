"""Agent of a cluster: runs the masters, nodes and fronts of flows on its host.

The agent watches the submissions of its cluster, and runs a `FlowRunner` for each flow that has
processes on this host. It publishes a record of itself, which lists the flows that cannot run here.
If an agent is killed, its processes end; the agent's next start restarts them.

A flow is over once its registry has the outcome of its run. If a flow cannot run here now, for
example because a module is missing, the agent retries it; other flows continue.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.flow_runner import FLOW_THREAD, AgentSettings, FlowRunner
from driftline.deploy.cluster.metrics import AgentStatus, process_metrics_address, serve_agent
from driftline.deploy.cluster.placement import cancel_rescale
from driftline.deploy.cluster.records import AgentRecord, AgentRole, DesiredState, Submission
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    fail,
    has_ended,
    list_agents,
    list_submissions,
    registry_of,
)
from driftline.deploy.cluster.zookeeper_tree import AGENTS, POLL_EVERY_S, ZooKeeperTree
from driftline.deploy.local.directories.leftovers import socket_folder
from driftline.deploy.runtime.claims import claim
from driftline.deploy.runtime.config import SESSION_S
from driftline.deploy.runtime.logs import MAIN
from driftline.deploy.runtime.metrics.endpoint import check_ports
from driftline.deploy.runtime.signals import Signals
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.engine.errors import Disconnected, DriftlineError, InUse, StateMismatch, Unavailable
from driftline.engine.events import FailureLog, event_fields, log
from driftline.engine.wire.addresses import parse
from driftline.engine.wire.kinds import AGENT

PLACEHOLDER_PORT = 1
"""Port in the addresses that `record_of` checks; each process later binds a free port."""


def record_of(
    name: str, roles: tuple[AgentRole, ...], slots: int, network: TransportConfig, state: Path
) -> AgentRecord:
    """Return the record of an agent in this process; it contains no problems yet.

    Raises NotPermitted or Unavailable if this host's processes could not listen at the addresses of
    `network`.
    """
    public_key = ""
    if network.scheme == "tcp":
        transport, endpoint = network.transport(), network.endpoint(PLACEHOLDER_PORT)
        transport.check_listener(AGENT, endpoint)
        public_key = parse(transport.resolve_advertised(endpoint)).public_key
    return AgentRecord(
        name,
        roles,
        socket.gethostname(),
        slots,
        os.getpid(),
        public=public_key,
        state=str(state),
    )


class Registration:
    """Registration of an agent in the tree: an ephemeral znode with its record.

    `record`: the agent's record, without problems. `publish` adds these; no other field changes.
    """

    def __init__(self, tree: ZooKeeperTree, record: AgentRecord) -> None:
        self._tree = tree
        self._record = record
        self._path = f"{AGENTS}/{record.name}"
        self._published: AgentRecord | None = None
        """The record as last written to the tree."""

    def publish(self, problems: tuple[tuple[str, str], ...] = ()) -> None:
        """Write the agent's record if it is new or changed. Raises InUse, Unavailable.

        `problems`: (flow, why it cannot run here) pairs.
        """
        record = replace(self._record, problems=problems)
        if record != self._published:
            self._tree.put_ephemeral(self._path, record.encode())
            self._published = record

    def end(self) -> None:
        """Remove the agent's record."""
        with suppress(Unavailable):  # the record then disappears with the session
            self._tree.remove_ephemeral(self._path)

    def name_taken_error(self) -> InUse:
        """Return the error for a name that another agent has. Raises Unavailable."""
        name, where = self._record.name, self._tree.where
        holder = [
            f" (host {each.host}, pid {each.pid})"
            for each in list_agents(self._tree)
            if each.name == name
        ]
        return InUse(
            f"{where} has an agent {name!r} already{''.join(holder)}: give this one another --name"
        )


CHECK_EVERY_S = 0.25
"""Maximum seconds between two checks of running flows and of signals."""

RETRY_AFTER_S = 10.0
"""Seconds until a flow that could not run is retried."""

HEALTHY_AFTER_S = 10.0
"""If a flow has run for this many seconds, its earlier problem counts as over."""


class AgentConfig(Struct, frozen=True):
    """Configuration of an agent: its name, its roles, and its resources for flows."""

    name: str
    roles: tuple[AgentRole, ...]
    state: Path
    slots: int
    """Maximum number of nodes and fronts; masters take no slot."""
    network: TransportConfig = LOCAL
    session_s: float = SESSION_S
    """Timeout of ZooKeeper sessions, in seconds."""
    metrics: str = ""
    """Metrics address, `HOST:PORT`; "": neither the agent nor its processes serve metrics."""


def run_agent(config: AgentConfig, tree: ZooKeeperTree) -> None:
    """Run an agent until a signal ends it.

    Raises Unavailable, InUse, NotPermitted, FlowError.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        stack.callback(claim(config.state / "agent.lock", "agent").release)
        sockets = stack.enter_context(socket_folder(config.state))
        if config.metrics:
            check_ports(config.metrics, 1)
        log.addFilter(_set_process_name)
        stack.callback(log.removeFilter, _set_process_name)
        agent = Agent(config, tree, sockets)
        stack.callback(agent.close)
        stack.enter_context(serve_agent(config.metrics, agent.status))
        with signals.defer():
            agent.run(signals)


def _set_process_name(record: logging.LogRecord) -> bool:
    """Set the process name of a log record: the flow in a flow's thread, else the agent.

    A logging filter that accepts all records.
    """
    thread = record.threadName or ""
    if record.processName == MAIN:
        is_flow = thread.startswith(FLOW_THREAD)
        record.processName = thread.removeprefix(FLOW_THREAD) if is_flow else AGENT
    return True


class Agent:
    """Agent of this process; `sockets`: an empty folder for the sockets of its child processes."""

    def __init__(self, config: AgentConfig, tree: ZooKeeperTree, sockets: Path) -> None:
        """Raise NotPermitted or Unavailable for unusable keys or addresses."""
        self._config = config
        self._tree = tree
        record = record_of(
            config.name,
            config.roles,
            slots=config.slots,
            network=config.network,
            state=config.state,
        )
        self._registration = Registration(tree, record)
        self._host = AgentSettings(
            config.name,
            state=config.state,
            sockets=sockets,
            network=config.network,
            session_s=config.session_s,
            log_level=log.getEffectiveLevel(),
            metrics=process_metrics_address(config.metrics),
        )
        self.status = AgentStatus(config.name, config.roles, config.slots)
        self._runners = self.status.runners
        self._ended_runs: set[str] = set()
        """Tokens (`Submission.run`) of runs that are over, and whose runners have ended. The agent
        does not start these runs again."""
        self._problems = self.status.problems
        """Flow -> why it could not run here."""
        self._unreadable: dict[str, str] = {}
        """Flow -> why its submission or registry cannot be read; its running processes continue."""
        self._retry_at: dict[str, float] = {}
        """Flow -> when to retry it (seconds, monotonic)."""
        self._runners_created = 0
        self._woken = Event()
        """Set when the tree has changed or a runner needs attention: wakes the loop."""
        self._outage = FailureLog("cluster-unavailable")
        """Log of failures to read the tree."""

    def run(self, signals: Signals) -> None:
        """Run until `signals` has a stop signal. Raises Unavailable, InUse."""
        try:
            self._run(signals)
        except InUse:
            raise self._registration.name_taken_error() from None

    def _run(self, signals: Signals) -> None:
        config, tree = self._config, self._tree
        tree.on_change(self._woken.set)
        self._publish_record()
        roles = ",".join(config.roles)
        log.info(
            "agent %s (roles %s) is running; cluster: %s",
            *(config.name, roles, tree.where),
            extra=event_fields("agent", name=config.name, roles=roles, slots=config.slots),
        )
        poll_at = 0.0
        while signals.stop_signal is None:
            now = self.status.turned_at = monotonic()
            if self._woken.is_set() or now >= poll_at:
                self._woken.clear()
                poll_at = now + POLL_EVERY_S
                self._reconcile(now)
            self._reap_runners(now)
            self._woken.wait(CHECK_EVERY_S)
        fields = event_fields("agent-ends", name=config.name, signal=signals.stop_signal.name)
        text = "agent %s ends on %s, with all its processes"
        log.info(text, config.name, signals.stop_signal.name, extra=fields)

    def close(self) -> None:
        """End all processes of this agent, and remove its record from the tree."""
        for runner in self._runners.values():
            runner.stop_requested.set()
        for runner in self._runners.values():
            runner.join()
        self._registration.end()

    def _reconcile(self, now: float) -> None:
        """Read the submissions, and start or end flows accordingly.

        Raises InUse if another agent has taken this agent's name.
        """
        config = self._config
        try:
            self._tree.restore_ephemerals()
            self._publish_record()
            damaged: dict[str, str] = {}
            submissions = list_submissions(self._tree, damaged)
            states = self._read_registries(submissions, damaged)
            submissions = [each for each in submissions if each.name in states]
        except InUse:
            raise  # another agent took this name after this one's session expired
        except Disconnected as error:  # already logged by the client; running processes continue
            self.status.unreachable_reason = str(error)
            return
        except (Unavailable, StateMismatch) as error:
            self.status.unreachable_reason = str(error)
            self._outage.record_failure(now, f"{error}; running processes continue; retrying")
            return
        self.status.unreachable_reason = ""
        self._outage.record_success(now, f"{self._tree.where} can be reached again")
        concerned = [
            each
            for each in submissions
            if each.concerns(config.name, config.roles, each.current_layout(states[each.name]))
        ]
        for each in concerned:
            self._reconcile_flow(each, states[each.name], now)
        names = {each.name for each in concerned}
        for name in self._runners.keys() - names - self._unreadable.keys():
            # The flow was removed, or has no process here any more.
            self._runners[name].stop_requested.set()
        for name in self._problems.keys() - names:
            del self._problems[name]

    def _read_registries(
        self, submissions: Sequence[Submission], damaged: dict[str, str]
    ) -> dict[str, ClusterState]:
        """Return the contents of each readable registry, by flow.

        `damaged`: flow -> reason. It contains the flows with a damaged submission. This function
        adds those with a damaged registry, keeps the dictionary as `_unreadable`, and logs the
        flows that are new in it. Raises Unavailable.
        """
        states: dict[str, ClusterState] = {}
        previously_unreadable, self._unreadable = self._unreadable, damaged
        for each in submissions:
            try:
                states[each.name] = registry_of(self._tree, each.name)
            except StateMismatch as error:
                damaged[each.name] = str(error)
        for name in damaged.keys() - previously_unreadable.keys():
            fields = event_fields("cannot-host", flow=name, reason=damaged[name])
            log.error("flow %s: %s", name, damaged[name], extra=fields)
        return states

    def _reconcile_flow(self, submission: Submission, state: ClusterState, now: float) -> None:
        """Start, update or end a flow's runner, as its submission and registry demand."""
        runner = self._runners.get(submission.name)
        is_over = has_ended(state, submission)
        if runner is not None and runner.submission.run != submission.run:
            # The flow was submitted again: its new run starts once this one has ended.
            runner.stop_requested.set()
        elif runner is not None:
            runner.submission = submission
            runner.draining = submission.desired_state is DesiredState.STOP
            runner.flow_ended |= is_over
            if submission.desired_state is DesiredState.CANCEL:
                runner.stop_requested.set()
        elif (
            not is_over
            and submission.desired_state is not DesiredState.CANCEL
            and self._may_run(submission, now)
        ):
            self._start(submission, state)

    def _may_run(self, submission: Submission, now: float) -> bool:
        return submission.run not in self._ended_runs and now >= self._retry_at.get(
            submission.name, 0.0
        )

    def _start(self, submission: Submission, state: ClusterState) -> None:
        self._runners_created += 1
        layout = submission.current_layout(state)
        names = submission.processes_of(self._config.name, self._config.roles, layout)
        runner = self._runners[submission.name] = FlowRunner(
            submission,
            names,
            layout,
            host=self._host,
            tree=self._tree,
            number=self._runners_created,
            on_all_ended=self._woken.set,
        )
        runner.draining = submission.desired_state is DesiredState.STOP
        log.info(
            "flow %s: starting %s here",
            *(submission.name, ", ".join(names) or "nothing yet"),
            extra=event_fields("hosting", flow=submission.name, processes=", ".join(names)),
        )
        runner.start()

    def _reap_runners(self, now: float) -> None:
        """Remove runners whose thread has ended, and record how they ended.

        Also withdraw requests to rescale that have failed, and drop problems that are over.
        """
        for name, runner in list(self._runners.items()):
            if runner.is_alive():
                continue
            runner.join()
            del self._runners[name]
            self._woken.set()
            if runner.is_done:
                self._ended_runs.add(runner.submission.run)
                log.info(
                    "flow %s has ended on this host",
                    name,
                    extra=event_fields("hosting-ended", flow=name),
                )
            if runner.fatal_error:
                self._fail(runner.submission, runner.fatal_error)
            if AgentRole.MASTER in self._config.roles and not runner.transient_error:
                self._log_outcome(runner.submission)
            problem = runner.transient_error or runner.fatal_error
            self._retry_at[name] = now + RETRY_AFTER_S if problem else 0.0
            if problem and self._problems.get(name) != problem:
                fields = event_fields("cannot-host", flow=name, reason=problem)
                retry = f"; retrying in {RETRY_AFTER_S:.0f} s" if runner.transient_error else ""
                log.error("flow %s: %s%s", name, problem, retry, extra=fields)
            if problem:
                self._problems[name] = problem
            else:
                self._problems.pop(name, None)
        for name, runner in self._runners.items():
            if runner.rescale_failed:
                self._cancel_rescale(name)
            if now >= runner.created_at + HEALTHY_AFTER_S:
                self._problems.pop(name, None)

    def _cancel_rescale(self, name: str) -> None:
        """Withdraw a flow's request to rescale, which has failed."""
        try:
            submission = cancel_rescale(self._tree, self._runners[name].submission)
        except (Unavailable, StateMismatch):
            return  # retried later
        self._runners[name].submission = submission

    def _log_outcome(self, submission: Submission) -> None:
        """Log how a flow ended, if it did: the flow's processes do not log this."""
        try:
            outcome = registry_of(self._tree, submission.name).outcome
        except DriftlineError:
            return  # `driftline status` shows the outcome
        if outcome is None or outcome.run != submission.run:
            return
        name = submission.name
        fields = event_fields("flow-ended", flow=name, error=outcome.error, reason=outcome.text)
        if outcome.error and outcome.error != CANCELLED:
            log.error("flow %s has failed: %s: %s", name, outcome.error, outcome.text, extra=fields)
        else:
            log.info("flow %s: %s", name, outcome.text or "complete", extra=fields)

    def _fail(self, submission: Submission, reason: str) -> None:
        """Record in the registry that the flow has failed, for `reason`."""
        try:
            fail(self._tree, submission, Unavailable.__name__, reason)
        except DriftlineError as error:
            log.warning("flow %s: %s", submission.name, error)

    def _publish_record(self) -> None:
        """Write this agent's record to the tree if it has changed. Raises InUse, Unavailable."""
        problems = self._problems | self._unreadable
        self._registration.publish(tuple(problems.items()))
