"""The process of a view's shard: ``python -m driftline.serve.hosting.view_process CONFIG``.

CONFIG is the JSON form of `ServiceConfig`. The process runs until its parent ends or kills it. At
SIGTERM it writes a last checkpoint if the next start would have to apply many outputs, and exits.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, time
from types import FrameType
from typing import NamedTuple

from driftline.deploy.runtime.loop.cpu_affinity import CpuAffinity
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child_process import ChildExitWatcher
from driftline.deploy.runtime.supervision.lifeline import Lifeline, exit_with_parent
from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.flow.loading import load_flow
from driftline.engine.texts import format_time
from driftline.engine.wire.role import Role
from driftline.serve.hosting.config import ServiceConfig, ViewLocation
from driftline.serve.hosting.feeds import WINDOW_BYTES, Subscription
from driftline.serve.hosting.host import APPLY_S, CheckpointSchedule, ViewHost
from driftline.serve.hosting.ipc import IpcParty, IpcServer, Route
from driftline.serve.hosting.processes import heartbeat_context, run_process
from driftline.serve.views.checkpoint import Retained, read_notes, restore_view, write_checkpoint
from driftline.serve.views.hosted import HostedView

CHECKPOINT = "checkpoint"
"""Name of the checkpoint file in the directory of a view."""

RETAINED = "retained"
"""Name of the file with the notes of `Retained`."""

ANSWERS_BYTES = 16 << 20
"""Limit of unsent answers in bytes; while they exceed it, questions wait."""

DRAIN = 32
"""Limit of questions received in a turn."""

_COPY_FAILED = 1
"""Exit status of a copy whose job has failed."""


class JournalLine(IpcParty):
    """The connection to the journal; reconnects when the host has a message to send."""

    def __init__(self, host: ViewHost, path: str) -> None:
        super().__init__("follower", self._lost)
        self._host = host
        self._path = path
        self._line: Route | None = None

    def drain(self) -> None:
        host, until = self._host, perf_counter() + APPLY_S
        while not host.busy and perf_counter() < until and (came := self.ipc.next()):
            host.handle_journal_message(came[1])
            if host.has_ready_questions:
                break  # answer them before the next message

    def work(self) -> bool:
        host = self._host
        if host.to_journal and self._line is None:
            self._line = self.ipc.connect(self._path)
        for data in host.to_journal:
            if self._line is not None:
                self.ipc.send(self._line, data)
        host.to_journal.clear()
        return False

    def _lost(self, line: Route) -> None:
        self._line = None


class AskLines(IpcParty):
    """The connections of the view's clients: receives questions, and sends answers."""

    def __init__(self, host: ViewHost, path: str) -> None:
        super().__init__("asks", host.drop_client)
        self._host = host
        host.has_room = lambda: self.ipc.unsent_bytes < ANSWERS_BYTES
        host.exchange = self._exchange
        self.ipc.listen(path)

    def drain(self) -> None:
        for _ in range(DRAIN):
            if (came := self.ipc.next()) is None:
                break
            self._host.handle_client_message(*came)

    def _exchange(self) -> None:
        self.drain()
        self.work()

    def work(self) -> bool:
        for route, data in self._host.answers:
            self.ipc.send(route, data)
        self._host.answers.clear()
        return False


class ForkedJobs(Role):
    """Background jobs of a host, run one at a time in forked copies of this process.

    A copy exits when this process exits, because a restarted process writes the same files.
    `servers`: the connections of this process, which a copy closes; `cores`: the CPU affinity of
    this process, which a copy drops.
    """

    def __init__(
        self,
        host: ViewHost,
        exits: ChildExitWatcher,
        servers: Sequence[IpcServer],
        cores: CpuAffinity,
    ) -> None:
        super().__init__("copies")
        self._host = host
        self._exits = exits
        self._servers = servers
        self._cores = cores
        self._copy: _Copy | None = None

    def turn(self) -> bool:
        host = self._host
        if self._copy is not None:
            pid, status = os.waitpid(self._copy.pid, os.WNOHANG)
            if pid:
                self._copy.lifeline.cut()
                self._copy = None
                host.finish_job(status == 0)
        elif host.job is not None:
            lifeline = Lifeline()
            pid = _copy(host.name, partial(self._do, host.job.do, lifeline))
            host.unfreeze()
            lifeline.on_child_started()
            self._copy = _Copy(pid, lifeline)
            self._exits.watch(pid)
        return False

    def _do(self, do: Callable[[], None], lifeline: Lifeline) -> None:
        """Run a job; called in the copy."""
        lifeline.cut()
        exit_with_parent(lifeline.fd)
        self._cores.unpin()
        for each in self._servers:
            each.close()
        do()


class _Copy(NamedTuple):
    """A running copy: its process id, and the lifeline that ends it with this process."""

    pid: int
    lifeline: Lifeline


def _copy(name: str, do: Callable[[], None]) -> int:
    """Fork a copy of this process that runs a job and exits. Return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.nice(10)
        do()
    except DriftlineError as error:
        log.warning(
            "%s: %s", name, error, extra=event_fields("copy-failed", error=type(error).__name__)
        )
    except BaseException as error:
        fields = event_fields("copy-failed", error=type(error).__name__)
        log.critical("a copy of %s has failed", name, exc_info=True, extra=fields)
    else:
        os._exit(0)
    os._exit(_COPY_FAILED)


def run_view(config: ServiceConfig) -> None:
    """Run a shard of a view until SIGTERM, or until damage of its files forces a rebuild.

    Raises Unavailable if the journal no longer retains the outputs that the view needs.
    """
    process, spec = config.process, config.view
    directory = config.path(config.name)
    with translate_os_errors("view", directory):
        directory.mkdir(parents=True, exist_ok=True)
    place = ViewLocation(
        load_flow(process.flow), directory, config.shard, spec.shards, dict(spec.options or {})
    )
    path = directory / CHECKPOINT
    whose = f"{config.name} of {spec.shards}\n{process.identity}\n{process.lineage}"
    view: HostedView = restore_view(path, whose, lambda: spec.make_view(place))
    kept = view.time
    if kept:
        fields = event_fields("view-restored", view=config.name, time=kept)
        log.info("%s is restored as of %s", config.name, format_time(kept), extra=fields)
    notes = directory / RETAINED
    if notes.exists() and not path.exists():  # `publish` writes both
        fields = event_fields("checkpoint-gone", view=config.name, path=str(path))
        text = "the checkpoint %s is gone; rebuilding the view from the journal"
        log.warning(text, path, extra=fields)
    retained = Retained(config.retained_s, time, read_notes(notes, kept))

    def publish() -> None:
        for _ in write_checkpoint(path, whose, view.save()):
            pass
        retained.write(notes)

    pace = CheckpointSchedule(config.checkpoint_s, config.checkpoint_items)
    following = Subscription(config.name, secrets.token_hex(8), kept, WINDOW_BYTES)
    host = ViewHost(config.name, view, following, kept, pace, retained, publish, perf_counter)
    cores = CpuAffinity(process.cores, (config.shard + 1) % 2)
    runtime = Runtime(cores=cores)
    runtime.add(host, f"inproc://{config.name}")
    journal, asks = (
        JournalLine(host, config.feeds),
        AskLines(host, config.query_socket(config.name)),
    )
    for each in (journal, asks):
        runtime.watch(each, each.ipc.fileno(), each.drain)
    exits = ChildExitWatcher()
    runtime.add(ForkedJobs(host, exits, (journal.ipc, asks.ipc), cores), "inproc://copies")
    if (file := exits.fileno()) is not None:
        runtime.listen(file, exits.take)

    def end(number: int, frame: FrameType | None) -> None:
        host.ending = True

    signal.signal(signal.SIGTERM, end)
    with heartbeat_context(config, runtime):
        runtime.run(
            lambda: host.lost is not None or bool(view.damage) or (host.ending and host.can_end)
        )
    if host.ending:
        return
    if host.lost is None:
        fields = event_fields("view-damaged", view=config.name, reason=view.damage)
        log.error("rebuilding %s from the journal: %s", config.name, view.damage, extra=fields)
        return
    raise Unavailable(f"{config.name} cannot follow the journal: {host.lost.reason}")


if __name__ == "__main__":
    run_process(sys.argv[1], run_view)
