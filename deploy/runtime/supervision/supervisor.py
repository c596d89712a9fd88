"""The supervisor: starts children, restarts those that die, and kills those that hang.

`RestartPolicy` and `HangDetector` decide; `Supervisor` starts and kills. It notices the crash of a
child at once (`ChildExitWatcher`). A child that logs why it cannot start, or dies repeatedly
without progress, ends the supervisor with an error that contains the child's last lines. A child
that is silent for too long is killed; its successor starts after its exit, as after any other
crash.
"""

from __future__ import annotations

import secrets
import subprocess
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from time import monotonic
from types import TracebackType
from typing import Self

from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child_process import (
    ChildExitWatcher,
    ChildProcess,
    ProcessHandle,
)
from driftline.deploy.runtime.supervision.restarts import (
    CANNOT_START,
    KILLED_SILENT,
    STOPPED,
    HangDetector,
    RestartPolicy,
    RunningProcess,
    describe_exit,
)
from driftline.engine.errors import RESUME_HINT, Unavailable
from driftline.engine.events import event_fields, log

CHILD_POLL_S = 0.05
"""Maximum interval between two checks of the children, in seconds."""


class CannotStart(Unavailable):
    """A process has logged why it cannot start."""


class Supervisor:
    """Supervisor of the children of this process. A context manager: its exit ends the children.

    A subclass launches the children, and may override the decision about an exit.
    """

    def __init__(self, names: Iterable[str], policy: RestartPolicy, missing_after_s: float) -> None:
        """`missing_after_s`: time without a sign of life, in seconds, that counts as a silence."""
        self.restart_policy = policy
        self.restarts_of: Counter[str] = Counter()
        """Child -> number of its restarts."""
        self._names = list(names)
        self._children: dict[str, ChildProcess] = {}
        self._tokens: dict[str, str] = {}
        """Child -> the token of its process, new with each start."""
        self._start_at: dict[str, float] = {}
        """Dead child -> when to restart it."""
        self._hung: set[str] = set()
        """Children killed for their silence, and not restarted yet."""
        self._exits = ChildExitWatcher()
        self._hangs = HangDetector(missing_after_s)
        self._next_check_at = 0.0

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                self._start(name)
        except BaseException:
            self.stop(0.0)
            raise
        names = ", ".join(f"{name} (pid {pid})" for name, pid in self.pids.items())
        log.info("started %s", names, extra=event_fields("processes-started", **self.pids))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(wait_s=0.0 if error is not None else 1.0)

    def wake(self, runtime: Runtime) -> None:
        """Let the loop of a runtime wake as soon as a child has exited."""
        if (file := self._exits.fileno()) is not None:
            runtime.watch_fd(file, self._exits.take)

    def is_due(self, now: float) -> bool:
        """Return whether to call `supervise`: `CHILD_POLL_S` has passed, or a child has exited."""
        return now >= self._next_check_at or self._exits.has_exits

    def supervise(self) -> None:
        """Restart children that have died, and kill those that hang.

        Raises Unavailable if a child cannot start, or has died too often.
        """
        now = monotonic()
        self._next_check_at = now + CHILD_POLL_S
        self._exits.has_exits = False
        self._kill_hung(now)
        for name, process in self._processes.items():
            if name not in self._start_at:
                status = process.poll()
                if status is None or self._is_final_exit(status):
                    continue
                restart_at = self._handle_exit(name, status, now)
                if restart_at is None:
                    continue
                self._start_at[name] = restart_at
                self.restarts_of[name] += 1
            if now >= self._start_at[name]:
                del self._start_at[name]
                self._start(name)
                pid = self.pids[name]
                fields = event_fields("process-started", name=name, pid=pid)
                log.info("%s is restarted (pid %d)", name, pid, extra=fields)

    def stop(self, wait_s: float = 5.0) -> None:
        """Wait until all children have exited, and kill those that have not after `wait_s`."""
        deadline = monotonic() + wait_s
        for each in self._children.values():
            try:
                each.process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
            each.flush()
        for each in self._children.values():
            each.cut()
        self._exits.close()

    @property
    def restarts(self) -> int:
        """The total number of restarts."""
        return self.restarts_of.total()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name. Thread-safe."""
        return {name: each.pid for name, each in list(self._children.items())}

    @property
    def running(self) -> list[str]:
        """Children that were running at the last check. Thread-safe."""
        children = list(self._children.items())
        return [name for name, each in children if each.process.returncode is None]

    @property
    def ended(self) -> bool:
        """Whether all children stopped on request."""
        return all(process.poll() == STOPPED for process in self._processes.values())

    # Methods that a subclass overrides.

    @abstractmethod
    def _launch(self, name: str, token: str) -> ChildProcess:
        """Return a new process of this name, and let `_exits` watch for its exit.

        `token`: id of the process, unique among all processes of this role.
        """

    def _is_final_exit(self, status: int) -> bool:
        """Return whether a child that exited with this status stays down."""
        return status == STOPPED

    def _handle_exit(self, name: str, status: int, now: float) -> float | None:
        """Return when to restart a child that has exited; None: never.

        Raises Unavailable if the supervisor has to give up.
        """
        return self._handle_crash(name, status, now)

    def _details(self, name: str, status: int) -> Iterable[str]:
        """Return further lines for the error about a child that died too often."""
        return ()

    # Methods for subclasses.

    @property
    def _processes(self) -> dict[str, ProcessHandle]:
        return {name: each.process for name, each in self._children.items()}

    def _start(self, name: str) -> None:
        """Start a process of this name."""
        self._hung.discard(name)
        self._tokens[name] = token = secrets.token_hex(8)
        if name in self._children:
            self._children[name].cut()
        self._children[name] = self._launch(name, token)
        self.restart_policy.record_start(name, monotonic())

    def _handle_crash(self, name: str, status: int, now: float) -> float:
        """Return when to restart a dead child.

        Raises CannotStart if it has logged why it cannot start, Unavailable if it has died too
        often without progress.
        """
        dead = self._children[name]
        ended = KILLED_SILENT if name in self._hung else describe_exit(status)
        dead.flush()
        last_lines = "\n".join(dead.stderr.last)
        if status == CANNOT_START:
            reason = last_lines or "it printed nothing on stderr"
            raise CannotStart(f"{name} cannot start: {reason}")
        restart_at = self.restart_policy.record_crash(name, now)
        if restart_at is None:
            lines = [
                f"{name} has died {self.restart_policy.limit} times in a row without "
                f"progress of the run. The last time it {ended}.",
                *self._details(name, status),
                "  Last output on stderr: " + last_lines.replace("\n", "\n    ")
                if last_lines
                else "  It printed nothing on stderr.",
                f"  {RESUME_HINT}.",
            ]
            raise Unavailable("\n".join(lines))
        pause, pid = restart_at - now, dead.pid
        log.warning(
            "%s (pid %d) %s; it will be restarted%s",
            *(name, pid, ended, f" in {pause:.1f} s" if pause else ""),
            extra=event_fields("process-died", name=name, pid=pid, status=status, pause=pause),
        )
        return restart_at

    def _kill_hung(self, now: float) -> None:
        """Kill children that are silent for too long."""
        running = {}
        for name, each in self._children.items():
            if name in self._start_at or name in self._hung or each.process.poll() is not None:
                continue
            running[name] = RunningProcess(self._tokens[name], each.pid)
            if each.keep_alive.has_new_sign():
                self._hangs.record_sign(name, self._tokens[name], now)
        for name in self._hangs.find_hung(now, running, self.restart_policy.count_crashes):
            self._processes[name].kill()
            self._hung.add(name)
