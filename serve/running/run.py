"""Run a service: front, input log and HTTP server in this process, journal and views in child
processes. A `Deployment` runs the master and the nodes.

Without a cluster, all durable state is in the state directory. The same command resumes after any
interruption.
Processes that die are restarted. Every record that this process has acknowledged is in the input
log. At SIGTERM, SIGINT, SIGHUP or `driftline stop`, the service rejects new requests. Once the
running requests have ended, or after `SHUTDOWN_TIMEOUT_S`, the front drains: accepted records are
processed, and a snapshot is written.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic, time_ns

import uvloop

from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import ReceivedSource
from driftline.coordinator.draining import ENDED_ON_REQUEST
from driftline.coordinator.registry import RunOutcome
from driftline.deploy.cluster.submissions import CANCELLED
from driftline.deploy.local.directories.leftovers import clear_drafts, socket_folder
from driftline.deploy.roles.front import Front
from driftline.deploy.runtime.claims import claim, wait_for_others
from driftline.deploy.runtime.loop.asyncio_driver import AsyncioDriver
from driftline.deploy.runtime.loop.cpu_affinity import CpuAffinity
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import new_id
from driftline.deploy.runtime.signals import Signals
from driftline.engine.errors import RESUME_HINT, FunctionFailed, Unavailable, error_of
from driftline.engine.events import event_fields, log
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.wire.messages import Stop
from driftline.serve.gateway.intake import Outcome, ServiceIntake
from driftline.serve.gateway.server import HttpServer, ListenAddress
from driftline.serve.gateway.service import ServiceBackend, WriteFuture
from driftline.serve.hosting.children import Children
from driftline.serve.hosting.config import ServiceConfig
from driftline.serve.running.deployment import (
    SHUTDOWN_TIMEOUT_S,
    Deploy,
    ServiceOptions,
    deploy_locally,
)
from driftline.serve.running.directories import POLICY

LOG_EVERY_S = 10.0
"""Interval in seconds of the log lines about a slow shutdown."""


def run_service(
    options: ServiceOptions,
    listener: socket.socket,
    on_ready: Callable[[ListenAddress], None],
    deploy: Deploy = deploy_locally,
) -> bool:
    """Serve until a signal arrives, or the flow is stopped or cancelled.

    `listener`: the listening socket, which the caller closes; `on_ready`: called with the address
    once the service is ready; `deploy`: prepares the deployment of master and nodes.

    Returns whether the service ended normally; False if its flow was cancelled. Raises
    DriftlineError if the service cannot start or continue.
    """
    address = options.listen_address
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        stack.callback(claim(options.state / "run.lock").release)
        wait_for_others(options.state)
        clear_drafts(options.state)
        sockets = stack.enter_context(socket_folder(options.state))
        return _Session(options, deploy, sockets, signals, stack).serve(
            lambda session: HttpServer(
                listener, address, session.make_backend, options.app, partial(on_ready, address)
            )
        )


class _Session:
    """One session of a service; `stack` closes the resources that the session opens."""

    def __init__(
        self,
        options: ServiceOptions,
        deploy: Deploy,
        sockets: Path,
        signals: Signals,
        stack: ExitStack,
    ) -> None:
        self._signals = signals
        self._stack = stack
        flow = load_flow(options.flow)
        self._plan = make_plan(flow)
        self._policy = get_policy(POLICY, "speculative")
        self._deployment = deploy(options, flow, self._plan, sockets, stack)
        self._process = self._deployment.process
        affinity = CpuAffinity(self._process.cores)
        self._runtime = Runtime(transport=self._process.transport(), affinity=affinity)
        stack.callback(self._runtime.close, linger_ms=0)
        self._config = ServiceConfig(
            self._process,
            str(options.state),
            options.views,
            self._deployment.journal,
            retained_bytes=options.retained_bytes,
        )
        self._intake = self._open_intake(options, flow.name)
        self._front = self._open_front()
        self._drain_at = self._log_at = inf
        """When to drain even if requests run (inf before the shutdown); when to log next that the
        service has not ended (inf before the drain). Both are times of `monotonic`."""

    def make_backend(self) -> ServiceBackend:
        """Make the backend of the HTTP server. Called once, in the asyncio loop."""
        backend = ServiceBackend(self._config, self._submit, self._figures, self._resume_time)
        self._resolve_writes = backend.resolve_writes
        return backend

    def serve(self, make_server: Callable[[_Session], HttpServer]) -> bool:
        """Serve until the session ends. Return whether it ended normally.

        Raises DriftlineError if the service cannot start or continue.
        """
        with ExitStack() as stack:
            children = self._children = stack.enter_context(Children(self._config))
            self._deployment.start(self._runtime, self._front, stack)
            stack.enter_context(Heartbeat(self._runtime, [self._front]))
            with (
                self._signals.defer(),
                self._runtime.low_latency(),
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                outcome = runner.run(self._drive(make_server))
            if outcome.error == CANCELLED:
                return False
            if outcome.error:
                function_failed = outcome.error == FunctionFailed.__name__
                text = outcome.text + f"\n  {RESUME_HINT}." * function_failed
                raise error_of(outcome.error, text)
            assert outcome.text == ENDED_ON_REQUEST
            children.finish()
            self._deployment.finish()
        return True

    async def _drive(self, make_server: Callable[[_Session], HttpServer]) -> Stop | RunOutcome:
        """Serve until the session ends, and return its outcome."""
        self._children.wake(self._runtime)
        self._http = make_server(self)
        try:
            driver: AsyncioDriver[Stop | RunOutcome] = AsyncioDriver(self._runtime, self._supervise)
            self._wake_runtime = driver.schedule_turn
            return await driver.result()
        finally:
            self._http.stop()

    def _supervise(self) -> Stop | RunOutcome | None:
        """Do the supervision that is due. Return the outcome once the session has ended.

        Raises DriftlineError if the service cannot continue.
        """
        now = monotonic()
        self._signals.check()
        signal = self._signals.stop_signal
        request = self._deployment.stop_request if signal is None else signal.name
        self._children.is_ending = bool(request)
        if request:
            self._shut_down(request, now)
        elif self._http.has_ended:
            raise Unavailable(f"the HTTP server has ended: {self._http.error}")
        if self._children.is_due(now):
            self._children.supervise()
        self._deployment.supervise(now)
        return self._front.outcome or self._deployment.outcome

    def _shut_down(self, request: str, now: float) -> None:
        """Stop the HTTP server, then drain the front; log a slow shutdown.

        `request`: the signal or command that has requested the shutdown, for the log.
        """
        front, http = self._front, self._http
        if self._drain_at == inf:
            self._drain_at = now + SHUTDOWN_TIMEOUT_S
            fields = event_fields("drain-requested", signal=request)
            log.info("%s: draining, new requests are rejected", request, extra=fields)
            http.stop()
        if not front.draining and (http.has_ended or now >= self._drain_at):
            front.drain()
            self._log_at = now + LOG_EVERY_S
        elif now >= self._log_at:
            self._log_at = now + LOG_EVERY_S
            reason = self._deployment.wait_reason or "it still processes and saves accepted records"
            text = "the service has not ended yet: %s. A kill -9 would lose no accepted record"
            log.warning(text, reason, extra=event_fields("ending", reason=reason))

    def _open_intake(self, options: ServiceOptions, name: str) -> ServiceIntake[WriteFuture]:
        owner = DirectoryOwner(self._process.lineage, "input-0", self._process.session)
        input_log = InputLog(Path(self._process.state) / owner.role, f"{name} 0", owner)
        self._stack.callback(input_log.close)
        self._resume_time = input_log.end_time
        address = options.producers or f"ipc://{self._process.sockets}/producers"
        event_time = self._plan.flow.sources[0].event_time
        source = ReceivedSource(input_log, _now_us, name="records", event_time=event_time)
        keys = options.sender_rules.keys_of(0, address) if options.producers else None
        intake = ServiceIntake(source, address, self._report_outcomes, keys=keys)
        self._stack.callback(intake.close)
        self._runtime.add_with_input(
            intake,
            intake.socket,
            intake.handle_input,
            has_work=intake.has_work,
            execute_job=input_log.execute_job,
        )
        return intake

    def _open_front(self) -> Front:
        process = self._process
        front = Front(
            *(0, process.nodes, self._plan, self._policy),
            self._intake.source,
            new_id,
            process=secrets.token_hex(8),
            run=process.run,
        )
        front.address = self._runtime.add(front, process.inbox("front-0"))
        front.addresses["master"] = process.master_at
        return front

    def _submit(self, records: list[tuple[WriteFuture, object]], bulk: bool) -> None:
        """Pass records to the intake, and wake the runtime."""
        self._intake.submit(records, bulk=bulk)
        self._wake_runtime()

    def _report_outcomes(self, outcomes: list[tuple[WriteFuture, Outcome]]) -> None:
        self._resolve_writes(outcomes)

    def _figures(self) -> dict[str, float]:
        source = self._intake.source
        return {
            "records": source.records,
            "waiting": source.waiting_records,
            "completed_time": self._front.completed,
            "producers": source.producers,
            "nodes": len(self._front.nodes),
        }


def _now_us() -> int:
    return time_ns() // 1000
