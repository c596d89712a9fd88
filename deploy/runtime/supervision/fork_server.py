"""Fork server: a process that has imported Driftline and loaded the flow; the processes of a run
are forked from it.

A fork takes milliseconds, whereas a new Python process needs 0.3 s to import Driftline, and as much
as the flow needs for its own imports. So a run starts sooner, and a dead process is replaced at
once. The processes share the memory of the imported code, and all of them run the same code, even
if the file of the flow changes during the run.

Command and fork server communicate over a socket pair with message boundaries. A request is the
configuration of a process, with the child's ends of its pipes attached; the answer is its ``PID``.
The fork server reports each exit as ``PID STATUS``, and ends when the command closes its end. If
the fork server dies, the command kills the processes that were forked from it, because it would not
hear of their exits; the run recovers from that as from any other deaths.
"""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic

from driftline.deploy.runtime.supervision.child import TERMINATION_SIGNALS
from driftline.deploy.runtime.supervision.child_process import ChildProcess, Pipes
from driftline.deploy.runtime.supervision.restarts import (
    CANNOT_START,
    SILENCE_TIMEOUT_S,
    describe_exit,
)
from driftline.deploy.runtime.supervision.supervisor import CannotStart
from driftline.engine.errors import Unavailable
from driftline.engine.events import event_fields, log

FORK_SERVER = "fork-server"
"""Name of the fork server in log lines, and its role in the configuration."""

CANCEL_POLL_S = 0.1
"""Interval in seconds at which a waiting command checks whether it is cancelled."""

MESSAGE_BYTES = 1 << 18
"""Largest size of a message: more than the largest argument of a process, 128 KiB."""


class ForkServer:
    """The command's end of a fork server.

    `link`: socket that is readable when an exit has been reported; `receive` records it.
    """

    def __init__(self, launch: Callable[[int], ChildProcess]) -> None:
        """`launch`: starts the process, given the descriptor of its end of the socket pair."""
        self.link, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self._child = launch(child_end.fileno())
        self.is_dead = False
        self._has_loaded = False
        self._answer: ForkedProcess | None = None
        """Answer to the current request."""
        self._running: dict[int, ForkedProcess] = {}

    def fork(self, config: str, pipes: Pipes, is_cancelled: Callable[[], bool]) -> ForkedProcess:
        """Return a new process, once the fork server has loaded the flow.

        `config`: its configuration, without its pipes. A fork server that has answered before and
        is silent for SILENCE_TIMEOUT_S is killed. If it has died, return a process that has exited
        with its id and status.

        Raises CannotStart if the fork server has logged why it cannot start, and Unavailable as
        soon as `is_cancelled` returns True.
        """
        with suppress(ConnectionError):  # it has died: `receive` notices it
            socket.send_fds(self.link, [config.encode()], pipes)
        kill_at = monotonic() + SILENCE_TIMEOUT_S if self._has_loaded else inf
        while self._answer is None and not self.is_dead:
            if is_cancelled():
                raise Unavailable("the run ends before its processes have started")
            if monotonic() > kill_at:
                self._child.process.kill()
            self.await_reports(CANCEL_POLL_S)
        process, self._answer = self._answer, None
        if process is not None:
            self._has_loaded = True
            return process
        status = self._child.process.wait()
        if status == CANNOT_START:
            last = "\n".join(self._child.stderr.last)
            raise CannotStart(f"the processes of the run cannot start: {last}")
        return ForkedProcess(self._child.pid, self, status)

    def await_reports(self, timeout_s: float | None) -> None:
        """Wait for reports, and record them. `timeout_s`: None waits without a limit."""
        if select.select([self.link], [], [], timeout_s)[0]:
            self.receive()

    def receive(self) -> None:
        """Record the reports that have arrived."""
        while not self.is_dead:
            try:
                report = self.link.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                report = b""
            if not report:
                self._handle_death()
                return
            pid, *status = map(int, report.split())
            if not status:
                self._answer = self._running[pid] = ForkedProcess(pid, self)
            else:
                self._running.pop(pid).returncode = status[0]

    def stop(self) -> None:
        """End the fork server. May be called again. Precondition: its processes have ended."""
        if not self.is_dead:
            self.is_dead = True
            self.link.close()
            self._child.end()

    def _handle_death(self) -> None:
        """Kill the processes that were forked from the dead fork server."""
        self.is_dead = True
        self.link.close()
        for process in self._running.values():
            _kill(process.pid)
            process.returncode = -signal.SIGKILL
        self._running.clear()
        status = self._child.process.wait()
        self._child.flush()
        self._child.cut()
        if status != CANNOT_START:
            log.warning(
                "the fork server (pid %d) %s; its processes are killed, and started again",
                *(self._child.pid, describe_exit(status)),
                extra=event_fields("fork-server-died", pid=self._child.pid, status=status),
            )


class ForkedProcess:
    """A process that was forked from a fork server; like a `subprocess.Popen`."""

    def __init__(self, pid: int, server: ForkServer, status: int | None = None) -> None:
        self.pid = pid
        self.returncode = status
        self._server = server

    def poll(self) -> int | None:
        """Return the exit status; None: the process runs."""
        if self.returncode is None:
            self._server.receive()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit, and return the status. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._server.await_reports(left)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def _kill(pid: int) -> None:
    """Kill a process that this process did not start, and wait until it has ended."""
    with suppress(ProcessLookupError):
        file = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(file, signal.SIGKILL)
            select.select([file], [], [])
        finally:
            os.close(file)


def await_fork(file: int) -> tuple[str, Pipes] | None:
    """In the fork server: fork a process for each request of the command.

    Return its configuration and its pipes in each of these processes; return None in the fork
    server, when the command needs it no longer. `file`: its end of the socket pair.
    """
    gc.collect()
    gc.freeze()  # a collection would copy the memory that the processes share
    # A handler that the flow has installed must not run in the fork server.
    flow_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    poller = select.poll()
    poller.register(file, select.POLLIN)
    running: dict[int, int] = {}
    with socket.socket(fileno=file) as link, suppress(ConnectionError):  # the command has died
        while True:
            for ready, _ in poller.poll():
                if ready != file:
                    poller.unregister(ready)
                    os.close(ready)
                    pid, status = os.waitpid(running.pop(ready), 0)
                    link.send(b"%d %d" % (pid, os.waitstatus_to_exitcode(status)))
                    continue
                config, files, *_ = socket.recv_fds(link, MESSAGE_BYTES, len(Pipes._fields))
                if not config:
                    return None
                pipes = Pipes(*files)
                if not (pid := _fork()):
                    signal.signal(signal.SIGCHLD, flow_handler)
                    for other in running:
                        os.close(other)
                    return config.decode(), _set_up(pipes)
                for each in pipes:
                    os.close(each)
                exit_file = os.pidfd_open(pid)
                running[exit_file] = pid
                poller.register(exit_file, select.POLLIN)
                link.send(b"%d" % pid)
    return None


def _fork() -> int:
    """Fork a process that handles termination signals as this one. Return what `os.fork` returns.

    Processes that functions of the user fork get the default handlers instead: `child` restores
    them after a fork, unless other handlers are installed during the fork.
    """
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in TERMINATION_SIGNALS}
    pid = os.fork()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return pid


def _set_up(pipes: Pipes) -> Pipes:
    """In a forked process: use its pipes, and random numbers of its own."""
    for number, pipe in enumerate((pipes.stdout, pipes.stderr), 1):
        os.dup2(pipe, number)
        os.close(pipe)
    random.seed()
    return pipes
