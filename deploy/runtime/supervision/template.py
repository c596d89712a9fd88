"""Template: a process that has imported Driftline and loaded the flow; the processes of a run are
forked from it.

A fork takes milliseconds, whereas a new Python process needs 0.3 s to import Driftline, and as much
as the flow needs for its own imports. So a run starts sooner, and a dead process is replaced at
once. The processes share the memory of the imported code, and all of them run the same code, even
if the file of the flow changes during the run.

Command and template communicate over a socket pair with message boundaries. A request is the
configuration of a process, with the child's ends of its pipes attached; the answer is its ``PID``.
The template reports each exit as ``PID STATUS``, and ends when the command closes its end. If the
template dies, the command kills the processes that were forked from it, because it would not hear
of their exits; the run recovers from that as from any other deaths.
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

TEMPLATE = "template"
"""Name of the template in log lines, and its role in the configuration."""

CANCEL_POLL_S = 0.1
"""Interval in seconds at which a waiting command checks whether it is cancelled."""

MESSAGE_BYTES = 1 << 18
"""Largest size of a message: more than the largest argument of a process."""


class Template:
    """The command's end of a template.

    `link`: socket that is readable when an exit has been reported; `receive` records it.
    """

    def __init__(self, launch: Callable[[int], ChildProcess]) -> None:
        """`launch`: starts the template, given the descriptor of its end of the socket pair."""
        self.link, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its_end:
            self._child = launch(its_end.fileno())
        self.is_dead = False
        self._has_loaded = False
        self._forked: list[ForkedProcess] = []
        """Answer to the current request."""
        self._running: dict[int, ForkedProcess] = {}

    def fork(self, config: str, pipes: Pipes, is_cancelled: Callable[[], bool]) -> ForkedProcess:
        """Return a new process, once the template has loaded the flow.

        `config`: its configuration, without its pipes. If the template has died, the process has
        died, too; a template that has loaded the flow and does not answer is killed. Raises
        CannotStart if the template has logged why it cannot start, and Unavailable as soon as
        `is_cancelled` returns True.
        """
        self._forked.clear()
        with suppress(ConnectionError):  # it has died: `receive` notices it
            socket.send_fds(self.link, [config.encode()], pipes)
        kill_at = monotonic() + SILENCE_TIMEOUT_S if self._has_loaded else inf
        while not (self._forked or self.is_dead):
            if is_cancelled():
                raise Unavailable("the run ends before its processes have started")
            if monotonic() > kill_at:
                self._child.process.kill()
            self.await_reports(CANCEL_POLL_S)
        self._has_loaded = True
        if self._forked:
            return self._forked.pop()
        status = self._child.process.wait()
        if status == CANNOT_START:
            last = "\n".join(self._child.stderr.last)
            raise CannotStart(f"the processes of the run cannot start: {last}")
        return ForkedProcess(self._child.pid, self, status)

    def await_reports(self, timeout_s: float | None) -> None:
        """Wait for reports, and record them; None: without a limit."""
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
                self._record_death()
                return
            pid, *status = map(int, report.split())
            if not status:
                self._running[pid] = process = ForkedProcess(pid, self)
                self._forked.append(process)
            else:
                self._running.pop(pid).returncode = status[0]

    def stop(self) -> None:
        """End the template. May be called again. Precondition: its processes have ended."""
        if not self.is_dead:
            self.is_dead = True
            self.link.close()
            self._child.end()

    def _record_death(self) -> None:
        """Kill the processes that were forked from the dead template."""
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
                "the template of the processes (pid %d) %s; they are killed, and started again",
                *(self._child.pid, describe_exit(status)),
                extra=event_fields("template-died", pid=self._child.pid, status=status),
            )


class ForkedProcess:
    """A process that was forked from a template; like a `subprocess.Popen`."""

    def __init__(self, pid: int, template: Template, status: int | None = None) -> None:
        self.pid = pid
        self.returncode = status
        self._template = template

    def poll(self) -> int | None:
        """Return the exit status; None: the process runs."""
        if self.returncode is None:
            self._template.receive()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit, and return the status. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if deadline is None else deadline - monotonic()
            if timeout is not None and left is not None and left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self._template.await_reports(left)
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
    """In the template: fork a process for each request of the command.

    Return its configuration and its pipes in each of these processes; return None in the template,
    when the command needs it no longer. `file`: the template's end of the socket pair.
    """
    gc.collect()
    gc.freeze()  # a collection would copy the memory that the processes share
    on_exit = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # no code of the flow sees the exits
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
                    signal.signal(signal.SIGCHLD, on_exit)
                    for other in running:
                        os.close(other)
                    return config.decode(), _use(pipes)
                for each in pipes:
                    os.close(each)
                running[os.pidfd_open(pid)] = pid
                poller.register([*running][-1], select.POLLIN)
                link.send(b"%d" % pid)
    return None


def _fork() -> int:
    """Fork a process that handles termination signals as the template does.

    One that a function forks does not (`child`). Return what `os.fork` returns.
    """
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in TERMINATION_SIGNALS}
    pid = os.fork()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return pid


def _use(pipes: Pipes) -> Pipes:
    """In a forked process: use its pipes, and random numbers of its own."""
    for number, pipe in enumerate((pipes.stdout, pipes.stderr), 1):
        os.dup2(pipe, number)
        os.close(pipe)
    random.seed()
    return pipes
