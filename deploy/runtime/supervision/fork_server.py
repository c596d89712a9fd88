"""Fork server: a process that has imported Driftline; the processes of a run are forked from it.

A fork takes milliseconds, whereas a new Python process needs 0.3 s to import Driftline. So a run
starts sooner, and a dead process is replaced at once; the processes share the memory of the
imported code. The fork server runs no code of the user, so there are no threads, files, locks or
connections that a fork would break: each process loads the flow itself.

Command and fork server communicate over a socket pair with message boundaries. A request is the
configuration of a process, with the child's ends of its pipes attached; the answer is its ``PID``.
The fork server reports each exit as ``PID STATUS``, and ends when the command closes its end. If
the fork server dies, the command kills the processes that were forked from it, because no one would
report their exits; the run recovers as after any other crashes.
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
from driftline.deploy.runtime.supervision.restarts import SILENCE_TIMEOUT_S, describe_exit
from driftline.deploy.runtime.supervision.supervisor import CannotStart
from driftline.engine.events import event_fields, log

FORK_SERVER = "fork-server"
"""Name of the fork server in log lines, and its role in the configuration."""

START_TIMEOUT_S = 60.0
"""Time in seconds in which a fork server must answer its first request: it has to import first."""

REPORT_POLL_S = 0.1
"""Interval in seconds at which a waiting command checks whether the fork server is silent."""

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
        self._timeout_s = START_TIMEOUT_S
        """Time in seconds in which the next request must be answered."""
        self._is_killed = False
        """Whether the fork server was killed because it was silent."""
        self._answer: ForkedProcess | None = None
        """Answer to the current request; None: it has not arrived."""
        self._running: dict[int, ForkedProcess] = {}

    def fork(self, config: str, pipes: Pipes) -> ForkedProcess:
        """Return a new process. `config`: its configuration, without its pipes.

        If a signal has killed the fork server, return an exited process that has the id and the
        exit status of the fork server. Raises CannotStart if the fork server ended with an error,
        for example because it cannot import Driftline.
        """
        with suppress(ConnectionError):  # the fork server has died, which `receive` notices
            socket.send_fds(self.link, [config.encode()], pipes)
        kill_at = monotonic() + self._timeout_s
        while self._answer is None and not self.is_dead:
            self.kill_if_silent(kill_at)
            self.await_reports(REPORT_POLL_S)
        process, self._answer = self._answer, None
        if process is not None:
            self._timeout_s = SILENCE_TIMEOUT_S
            return process
        status = self._child.process.wait()
        if status > 0:
            last = "\n".join(self._child.stderr.last)
            raise CannotStart(f"the processes of the run cannot start: {last}")
        return ForkedProcess(self._child.pid, self, status)

    def await_reports(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for reports, and record them."""
        if not self.is_dead and _is_readable(self.link.fileno(), timeout_s):
            self.receive()

    def kill_if_silent(self, deadline: float) -> None:
        """Kill the fork server once an answer or report is overdue: SIGSTOP may have stopped it."""
        if monotonic() > deadline:
            self._is_killed = True
            self._child.process.kill()

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
                self._handle_crash()
                return
            pid, *status = map(int, report.split())
            if not status:
                self._answer = self._running[pid] = ForkedProcess(pid, self)
            else:
                self._running.pop(pid).record_exit(status[0])

    def stop(self) -> None:
        """End the fork server. May be called again. Precondition: its processes have ended."""
        if not self.is_dead:
            self.is_dead = True
            self.link.close()
            self._child.end()

    def _handle_crash(self) -> None:
        """Kill the processes that were forked from the dead fork server."""
        self.is_dead = True
        self.link.close()
        for process in self._running.values():
            process.end_without_report()
        self._running.clear()
        status = self._child.process.wait()
        self._child.flush()
        self._child.cut()
        if status <= 0:
            ending = "did not answer and was killed" if self._is_killed else describe_exit(status)
            log.warning(
                "the fork server (pid %d) %s; its processes are killed, and started again",
                *(self._child.pid, ending),
                extra=event_fields("fork-server-died", pid=self._child.pid, status=status),
            )


class ForkedProcess:
    """A process that was forked from the fork server; like a `subprocess.Popen`."""

    def __init__(self, pid: int, server: ForkServer, status: int | None = None) -> None:
        self.pid = pid
        self.returncode = status
        self._server = server
        self._exit_file = -1
        """Descriptor that is readable once the process has exited; -1: the process has exited."""
        if status is None:
            with suppress(ProcessLookupError):  # it has exited; the fork server reports that
                self._exit_file = os.pidfd_open(pid)
        self._report_by = inf
        """Deadline for the report of the exit."""

    def poll(self) -> int | None:
        """Return the exit status; None: the process runs."""
        if self.returncode is None:
            self._server.receive()
        if self.returncode is None and self._has_exited():
            self._report_by = min(self._report_by, monotonic() + SILENCE_TIMEOUT_S)
            self._server.kill_if_silent(self._report_by)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit, and return the status. Raises subprocess.TimeoutExpired."""
        deadline = inf if timeout is None else monotonic() + timeout
        while (status := self.poll()) is None:
            remaining_s = deadline - monotonic()
            if remaining_s <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._server.await_reports(min(remaining_s, REPORT_POLL_S))
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None and self._exit_file >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._exit_file, number)

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _has_exited(self) -> bool:
        return self._exit_file < 0 or _is_readable(self._exit_file, 0.0)

    def record_exit(self, status: int) -> None:
        """Record the exit."""
        self.returncode = status
        if self._exit_file >= 0:
            os.close(self._exit_file)
            self._exit_file = -1

    def end_without_report(self) -> None:
        """Kill the process, whose exit will not be reported, and wait until it has exited."""
        if self._exit_file >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._exit_file, signal.SIGKILL)
            _is_readable(self._exit_file, None)
        self.record_exit(-signal.SIGKILL)


def _is_readable(file: int, timeout_s: float | None) -> bool:
    """Return whether a descriptor becomes readable within a time; None: wait without a limit."""
    poller = select.poll()
    poller.register(file, select.POLLIN)
    return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))


def await_fork(file: int) -> tuple[str, Pipes] | None:
    """In the fork server: fork a process for each request of the command.

    In each forked process, return its configuration and its pipes; in the fork server, return None
    once the command has closed its end. `file`: the fork server's end of the socket pair.
    """
    gc.collect()
    gc.freeze()  # a collection would copy the memory that the processes share
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
    """Fork a process that handles termination signals like this one. Return `os.fork`'s result.

    After each fork, `child` replaces its own handlers by the default ones, for processes that user
    functions fork. It keeps other handlers, so SIG_IGN stands in for its own during this fork.
    """
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in TERMINATION_SIGNALS}
    pid = os.fork()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return pid


def _set_up(pipes: Pipes) -> Pipes:
    """In a forked process: redirect its output to its pipes, and seed its random numbers."""
    for number, pipe in enumerate((pipes.stdout, pipes.stderr), 1):
        os.dup2(pipe, number)
        os.close(pipe)
    random.seed()
    return pipes
