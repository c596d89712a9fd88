"""Runs a service on this machine: front, input log and HTTP server in this process, all other parts
in processes of their own.

Everything that has to survive is in the state directory: the same command goes on after any
interruption. A process that dies is started again; what this process has acknowledged is in the
input log. At SIGTERM no more is taken, what was taken is worked off, and a snapshot is written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, time_ns

from starlette.types import ASGIApp

from driftline.coordinator.draining import IN_GOOD_ORDER
from driftline.deploy.host.claims import claim
from driftline.deploy.host.config import ProcessConfig
from driftline.deploy.host.heartbeat import Heartbeat
from driftline.deploy.host.process import new_id
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.signals import Signals
from driftline.deploy.host.supervisor import LocalCluster
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.watch import Watch
from driftline.deploy.run.leftovers import clear_drafts, socket_folder
from driftline.deploy.run.reach import HERE, Reach, check_input
from driftline.engine.errors import FlowError, Unavailable, error_of
from driftline.engine.events import about, log
from driftline.engine.flow.code import code_of
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy
from driftline.engine.sources.logs.ages import Ages
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.wire.marks import Mark
from driftline.serve.gateway.intake import Outcome, ServiceIntake
from driftline.serve.gateway.server import HttpServer, Listening, bound
from driftline.serve.gateway.service import Service, Waiting
from driftline.serve.hosting.children import Children
from driftline.serve.hosting.config import ServiceConfig, ViewSpec
from driftline.serve.running.opening import POLICY, open_service

WATCH = "watch"

ENDS_WITHIN_S = 5.0
"""How long the last messages of the master, and requests under way, may take at the end."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, and where."""

    flow: str
    """The name of the flow: node processes load it themselves."""
    views: tuple[ViewSpec, ...]
    app: Callable[[Service], ASGIApp]
    """Makes what HTTP clients see."""
    state: Path
    listening: Listening
    producers: str = ""
    """The address at which producers are heard over ZeroMQ; "": only in a folder of this user."""
    reach: Reach = HERE
    nodes: int = 1
    checkpoint_s: float = 1.0
    retained_bytes: int | None = None
    paths: tuple[str, ...] = ()
    accept_changed_code: bool = False


def run_service(serving: Serving, ready: Callable[[Listening], None]) -> None:
    """Serve until a signal comes. `ready`: is told where, once everything answers.

    Raises DriftlineError if it cannot begin, or not go on.
    """
    if serving.producers:
        check_input(0, serving.producers, serving.reach)
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        found, listening = bound(serving.listening)
        stack.callback(found.close)
        stack.callback(claim(serving.state / "run.lock").release)
        clear_drafts(serving.state, serving.state)
        sockets = stack.enter_context(socket_folder(serving.state))
        _Run(serving, sockets, signals, stack).serve(
            lambda run: HttpServer(
                found, listening, run.service, serving.app, partial(ready, listening)
            )
        )


class _Run:
    """One session of a service; `stack` closes what it opens."""

    def __init__(self, serving: Serving, sockets: Path, signals: Signals, stack: ExitStack) -> None:
        self._signals = signals
        self._stack = stack
        self._runtime = Runtime()
        stack.callback(self._runtime.close, linger_ms=0)
        flow = load_flow(serving.flow)
        if len(flow.sources) != 1:
            raise FlowError(f"{serving.flow} has {len(flow.sources)} sources: a service has one")
        self._plan = plan(flow)
        self._policy = policy(POLICY, "speculative")
        state = open_service(
            serving.state,
            *(flow, self._plan, serving.nodes),
            accept_changed_code=serving.accept_changed_code,
        )
        self._process = ProcessConfig(
            flow=serving.flow,
            nodes=serving.nodes,
            layout=state.layout,
            policy=POLICY,
            ordering="speculative",
            checkpoint_s=serving.checkpoint_s,
            state=str(serving.state),
            sockets=str(sockets),
            watch=f"ipc://{sockets}/{WATCH}",
            identity=state.identity,
            code=code_of(flow).text,
            run=secrets.token_hex(8),
            dead_letters=True,
            lineage=state.lineage,
            session=state.opened + 1,
            journal=True,
            paths=serving.paths,
            log_level=log.getEffectiveLevel(),
        )
        self._config = ServiceConfig(
            self._process,
            str(serving.state),
            serving.views,
            retained_bytes=serving.retained_bytes,
        )
        self._intake = self._open_intake(serving)
        self._front = self._open_front()
        self._watch = Watch()
        self._watch.address = self._runtime.add(self._watch, self._process.address(WATCH))
        self._watch.addresses["master"] = self._process.address("master")

    def service(self) -> Service:
        """The backend of the HTTP server; called in its loop."""
        service = Service(self._config, self._submit, self._figures, self._taken)
        self._told = service.told
        return service

    def serve(self, server: Callable[[_Run], HttpServer]) -> None:
        """Serve until a signal comes, and end in good order."""
        heartbeat = Heartbeat(self._runtime, [self._front])
        with Children(self._config) as children, LocalCluster(self._process) as cluster, heartbeat:
            http = server(self)
            http.start()
            try:
                self._drive(cluster, children, http)
            finally:
                http.stop()

    def _drive(self, cluster: LocalCluster, children: Children, http: HttpServer) -> None:
        runtime, front, signals = self._runtime, self._front, self._signals
        cluster.wake(runtime)
        children.wake(runtime)
        supervise_at, more, end_at = 0.0, False, float("inf")
        with signals.noted():
            while front.outcome is None:
                more = runtime.step(more, wait_s=0.05)
                now = monotonic()
                signals.check()
                if signals.asked is not None and not front.draining:
                    if end_at > now + ENDS_WITHIN_S:
                        end_at = now + ENDS_WITHIN_S
                        told = about("asked-to-end", signal=signals.asked.name)
                        log.info("%s: no more is taken", signals.asked.name, extra=told)
                        http.stop()
                    if http.ended or now >= end_at:
                        front.drain()
                elif http.ended and signals.asked is None:
                    raise Unavailable(f"the HTTP server has ended: {http.error}")
                if now >= supervise_at or cluster.has_lost_one or children.has_lost_one:
                    supervise_at = now + 0.05
                    children.supervise()
                    cluster.supervise(front.settled, front.furthest, self._watch)
        outcome = front.outcome
        if outcome.error:
            raise error_of(outcome.error, outcome.text)
        assert outcome.text == IN_GOOD_ORDER
        until = monotonic() + ENDS_WITHIN_S
        while not cluster.nodes_ended and monotonic() < until:
            runtime.step(wait_s=0.05)
            cluster.supervise()

    def _open_intake(self, serving: Serving) -> ServiceIntake[Waiting]:
        mark = Mark(self._process.lineage, "input-0", self._process.session)
        input_log = InputLog(serving.state / mark.role, f"{serving.flow} 0", mark)
        self._stack.callback(input_log.close)
        self._taken = input_log.last_time and input_log.last_time + 1
        address = serving.producers or f"ipc://{self._process.sockets}/producers"
        source = ReceivedSource(input_log, _now_us, name="records", ages=Ages(_now_us, monotonic))
        keys = serving.reach.keys_of(0, address) if serving.producers else None
        folder = Path(self._process.sockets)
        intake = ServiceIntake(source, address, folder, self._tell, keys=keys)
        self._stack.callback(intake.close)
        self._runtime.watch(intake, intake.socket, intake.drain, intake.room, input_log.carry_out)
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

    def _submit(self, records: list[tuple[Waiting, object]]) -> None:
        """Hand records to the intake; called in the loop of the HTTP server."""
        self._runtime.soon(partial(self._intake.submit, records))

    def _tell(self, outcomes: list[tuple[Waiting, Outcome]]) -> None:
        self._told(outcomes)

    def _figures(self) -> dict[str, float]:
        source = self._intake.source
        return {
            "records": source.records,
            "waiting": source.waiting,
            "settled": self._front.settled,
            "producers": source.producers,
            "nodes": self._process.nodes,
        }


def _now_us() -> int:
    return time_ns() // 1000
