"""The process of a view's shard: ``python -m driftline.serve.hosting.view_process CONFIG``.

CONFIG is the JSON form of `ServiceConfig`. The process runs until its parent ends or kills it. At
SIGTERM it exits, after a last checkpoint if the next start would otherwise apply many outputs. It
also exits if its files are damaged, so that the next process rebuilds the view, or if the journal
no longer retains the outputs that the view needs.
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
from driftline.serve.hosting.ipc import IpcRole, IpcServer, Route
from driftline.serve.hosting.processes import heartbeat_context, run_process
from driftline.serve.views.checkpoint import Retention, read_notes, restore_view, write_checkpoint
from driftline.serve.views.hosted import HostedView

CHECKPOINT = "checkpoint"
"""Name of the checkpoint file in the directory of a view."""

RETENTION_NOTES = "retained"
"""Name of the file with the notes of `Retention`."""

ANSWERS_BYTES = 16 << 20
"""Limit of unsent answers in bytes; at this limit, questions wait."""

MESSAGES_PER_TURN_MAX = 32
"""Largest number of clients' messages that a call of `QuestionServer.handle_input` handles."""

_COPY_FAILED = 1
"""Exit status of a forked copy (`ForkedJobs`) whose job has failed."""


class JournalConnection(IpcRole):
    """The connection to the journal; reconnects when the host has a message to send."""

    def __init__(self, host: ViewHost, path: str) -> None:
        super().__init__("follower", self._on_disconnect)
        self._host = host
        self._path = path
        self._route: Route | None = None
        """The route of the connection; None if there is no connection."""

    def handle_input(self) -> None:
        host, deadline = self._host, perf_counter() + APPLY_S
        while not host.busy and perf_counter() < deadline and (received := self.ipc.next()):
            _, message = received
            host.handle_journal_message(message)
            if host.has_ready_questions:
                break  # answer them before the next message

    def work(self) -> bool:
        host = self._host
        if host.to_journal and self._route is None:
            self._route = self.ipc.connect(self._path)
        for data in host.to_journal:
            if self._route is not None:
                self.ipc.send(self._route, data)
        host.to_journal.clear()
        return False

    def _on_disconnect(self, route: Route) -> None:
        self._route = None


class QuestionServer(IpcRole):
    """The connections of the view's clients: receives questions, and sends answers."""

    def __init__(self, host: ViewHost, path: str) -> None:
        super().__init__("asks", host.drop_client)
        self._host = host
        host.has_room = lambda: self.ipc.unsent_bytes < ANSWERS_BYTES
        host.exchange = self._exchange
        self.ipc.listen(path)

    def handle_input(self) -> None:
        for _ in range(MESSAGES_PER_TURN_MAX):
            if (received := self.ipc.next()) is None:
                break
            self._host.handle_client_message(*received)

    def _exchange(self) -> None:
        self.handle_input()
        self.work()

    def work(self) -> bool:
        for route, data in self._host.answers:
            self.ipc.send(route, data)
        self._host.answers.clear()
        return False


class ForkedJobs(Role):
    """Background jobs of a host, run one at a time in forked copies of this process.

    A copy exits when this process exits, because a restarted process writes the same files.
    `servers`: the connections of this process, which a copy closes; `affinity`: the CPU affinity of
    this process, which a copy removes.
    """

    def __init__(
        self,
        host: ViewHost,
        exits: ChildExitWatcher,
        servers: Sequence[IpcServer],
        affinity: CpuAffinity,
    ) -> None:
        super().__init__("copies")
        self._host = host
        self._exits = exits
        self._servers = servers
        self._affinity = affinity
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
            pid = _fork_copy(host.name, partial(self._run_job, host.job.do, lifeline))
            host.unfreeze()
            lifeline.on_child_started()
            self._copy = _Copy(pid, lifeline)
            self._exits.watch(pid)
        return False

    def _run_job(self, do: Callable[[], None], lifeline: Lifeline) -> None:
        """Run a job; called in the copy."""
        lifeline.cut()
        exit_with_parent(lifeline.fd)
        self._affinity.unpin()
        for server in self._servers:
            server.close()
        do()


class _Copy(NamedTuple):
    """A running copy: its process id, and the lifeline that ends it together with this process."""

    pid: int
    lifeline: Lifeline


def _fork_copy(name: str, do: Callable[[], None]) -> int:
    """Fork a copy of this process that runs a job and exits. Return the copy's process id."""
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
        text = "an unexpected error ends a background job of %s"
        log.critical(text, name, exc_info=True, extra=fields)
    else:
        os._exit(0)
    os._exit(_COPY_FAILED)


def run_view(config: ServiceConfig) -> None:
    """Run a shard of a view until SIGTERM, or until damaged files force a rebuild.

    The next process rebuilds the view. Raises Unavailable if the journal no longer retains the
    outputs that the view needs, or if files cannot be read or written.
    """
    process, spec = config.process, config.view
    directory = config.path(config.name)
    with translate_os_errors("view", directory):
        directory.mkdir(parents=True, exist_ok=True)
    location = ViewLocation(
        load_flow(process.flow), directory, config.shard, spec.shards, dict(spec.options or {})
    )
    path = directory / CHECKPOINT
    identity = f"{config.name} of {spec.shards}\n{process.identity}\n{process.lineage}"
    view: HostedView = restore_view(path, identity, lambda: spec.make_view(location))
    checkpoint_time = view.time
    if checkpoint_time:
        fields = event_fields("view-restored", view=config.name, time=checkpoint_time)
        text = "%s is restored as of %s"
        log.info(text, config.name, format_time(checkpoint_time), extra=fields)
    notes = directory / RETENTION_NOTES
    if notes.exists() and not path.exists():  # `save_checkpoint` writes both
        fields = event_fields("checkpoint-gone", view=config.name, path=str(path))
        text = "the checkpoint %s is gone; rebuilding the view from the journal"
        log.warning(text, path, extra=fields)
    retention = Retention(config.retained_s, time, read_notes(notes, checkpoint_time))

    def save_checkpoint() -> None:
        for _ in write_checkpoint(path, identity, view.save()):
            pass
        retention.write(notes)

    host = ViewHost(
        config.name,
        view,
        Subscription(config.name, secrets.token_hex(8), checkpoint_time, WINDOW_BYTES),
        checkpoint_time,
        CheckpointSchedule(config.checkpoint_s, config.checkpoint_items),
        retention,
        save_checkpoint,
        perf_counter,
    )
    affinity = CpuAffinity(process.cores, (config.shard + 1) % 2)
    runtime = Runtime(affinity=affinity)
    runtime.add(host, f"inproc://{config.name}")
    journal = JournalConnection(host, config.feeds_socket)
    questions = QuestionServer(host, config.query_socket(config.name))
    for role in (journal, questions):
        runtime.add_with_input(role, role.ipc.fileno(), role.handle_input)
    exits = ChildExitWatcher()
    runtime.add(ForkedJobs(host, exits, (journal.ipc, questions.ipc), affinity), "inproc://copies")
    if (file := exits.fileno()) is not None:
        runtime.watch_fd(file, exits.take)

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        host.is_ending = True

    def is_over() -> bool:
        is_unusable = host.truncated is not None or bool(view.damage)
        return is_unusable or (host.is_ending and host.can_end)

    signal.signal(signal.SIGTERM, on_sigterm)
    with heartbeat_context(config, runtime):
        runtime.run(is_over)
    if host.is_ending:
        return
    if host.truncated is None:
        fields = event_fields("view-damaged", view=config.name, reason=view.damage)
        log.error("rebuilding %s from the journal: %s", config.name, view.damage, extra=fields)
        return
    raise Unavailable(f"{config.name} cannot follow the journal: {host.truncated.reason}")


if __name__ == "__main__":
    run_process(sys.argv[1], run_view)
