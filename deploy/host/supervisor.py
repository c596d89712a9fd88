"""The local cluster: starts the node and master processes of a run on this machine, and restarts
them.

A process that dies is started again; the coordinator then recovers the run. A process that cannot
start, or that dies again and again while the run makes no progress, ends the run; the error has the
last lines that the process wrote, and the record that it was working on. Lines that processes write
to standard error are told as they come.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import Self

from driftline.deploy.host import child
from driftline.deploy.host.deaths import Deaths, how
from driftline.deploy.host.lifeline import Lifeline
from driftline.deploy.host.process import CANNOT_START, STOPPED, ProcessConfig, where_it_was
from driftline.engine.errors import Unavailable

MODULE = "driftline.deploy.host.process"
"""The module that a process runs."""

SHOWN_MAX = 20
"""Lines of one process that are told at a time at most; as many are remembered."""

SHOWN_FIRST = 5
"""How many of these lines are the first ones, if lines are left out."""

KEPT_BYTES = 1 << 20
"""How much text of a process is kept."""


class LocalCluster:
    """Node and master processes. A context manager: on leaving it they are ended."""

    def __init__(
        self, config: ProcessConfig, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.config = config
        self.kills = 0
        self.restarts = 0
        self.deaths = Deaths(config.limits.deaths)
        self._tell = tell
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lifelines: dict[str, Lifeline] = {}
        self._start_at: dict[str, float] = {}
        """Process that has died -> when it is started again."""
        self._killed: set[str] = set()
        """Processes that `kill_one` has killed."""
        self._asked_again = False
        self._mouths: dict[str, _Mouth] = {}

    def __enter__(self) -> Self:
        for name in ["master", *(f"node-{i}" for i in range(self.config.nodes))]:
            self._mouths[name] = _Mouth()
            self._start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(wait_s=0.0 if error is not None else 1.0)

    def supervise(self, settled: int = 0, sent: int = 0) -> None:
        """Restart processes that have died. `settled`, `sent`: how far the run is (see `Deaths`).

        Raises Unavailable if a process cannot start, or has died too often.
        """
        now = monotonic()
        self.deaths.moved(settled, sent)
        for name, process in self._processes.items():
            self._relay(name)
            if name in self._start_at:
                if now >= self._start_at[name]:
                    del self._start_at[name]
                    self._start(name)
                continue
            status = process.poll()
            if status is None or status == STOPPED:
                continue
            self.restarts += 1
            if name in self._killed:
                self._killed.remove(name)
                self._start(name)
            else:
                self._start_at[name] = self._died(name, status, now)

    def _died(self, name: str, status: int, now: float) -> float:
        """When to start a process that has died again. Raises Unavailable."""
        self._relay(name)
        heard = "\n".join(self._mouths[name].last)
        said = heard or "it said nothing"
        if status == CANNOT_START:
            raise Unavailable(f"{name} cannot start: {said}")
        at = self.deaths.died(name, now)
        if at is None:
            was = where_it_was(self.config, name)
            raise Unavailable(
                f"{name} has died {self.deaths.limit} times in a row without the run getting any "
                f"further, this time {how(status)}.\n"
                + (f"  It was at: {was}\n" if was else "")
                + ("  It said: " + said.replace("\n", "\n    ") if heard else "  It said nothing.")
                + "\n  Once the cause is mended, the same command goes on."
            )
        self._tell(f"{name} {how(status)}; it is started again")
        return at

    def kill_one(self, chance: random.Random) -> str:
        """Kill -9 a random process. Returns its name."""
        name = chance.choice(sorted(set(self._processes) - set(self._start_at)))
        self._processes[name].kill()
        self._processes[name].wait()
        self.kills += 1
        self._killed.add(name)
        return name

    @property
    def master_ended(self) -> bool:
        """Whether the master has ended in good order."""
        return self._processes["master"].poll() == STOPPED

    @property
    def nodes_ended(self) -> bool:
        """Whether all nodes have ended in good order."""
        nodes = [process for name, process in self._processes.items() if name != "master"]
        return all(node.poll() == STOPPED for node in nodes)

    def ask_again(self) -> None:
        """Start another master, which finds in the registry how the run ended.

        Precondition: the master has ended, and has not said how. Raises Unavailable if this has
        been tried before.
        """
        if self._asked_again:
            raise Unavailable("the master ended without a word")
        self._asked_again = True
        self._start("master")

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: process.pid for name, process in self._processes.items()}

    def stop(self, wait_s: float = 5.0) -> None:
        """Wait until all processes have ended, and kill those that have not after `wait_s`."""
        deadline = monotonic() + wait_s
        for name, process in self._processes.items():
            try:
                process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._relay(name)
        for lifeline in self._lifelines.values():
            lifeline.cut()
        self._lifelines.clear()

    def _start(self, name: str) -> None:
        role, _, index = name.partition("-")
        if name in self._lifelines:
            self._lifelines.pop(name).cut()
        lifeline = self._lifelines[name] = Lifeline()
        config = replace(
            self.config,
            role=role,
            index=int(index or 0),
            lifeline=lifeline.fd,
            careful=self.deaths.careful(name),
        )
        self._processes[name] = self._popen(config, self._mouths[name].fd)
        lifeline.started()
        self.deaths.started(name, monotonic())

    def _popen(self, config: ProcessConfig, stderr: int) -> subprocess.Popen[bytes]:
        with _deaf_to_interrupts():
            return subprocess.Popen(
                child.command(MODULE, config.to_json()),
                env=child.environment(),
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[config.lifeline],
            )

    def _relay(self, name: str) -> None:
        """Tell the lines that a process has written since the last call."""
        lines = self._mouths[name].said()
        left_out = max(0, len(lines) - SHOWN_MAX)
        if left_out:  # most of the lines told are the last ones: a traceback ends with its cause
            lines[SHOWN_FIRST : SHOWN_FIRST + left_out] = [f"... ({left_out} lines more)"]
        for line in lines:
            self._tell(f"{name}: {line}")


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started within this context ignore SIGINT: at a Ctrl-C the command ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a signal handler
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Mouth:
    """The standard error of a process: a file, so that the process never waits for a reader."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as we do
        self.fd = self._file.fileno()
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)  # so that it can be cut
        self.last: deque[str] = deque(maxlen=SHOWN_MAX)
        """The last lines, for the error that ends the run."""
        self._at = 0
        self._begun = b""

    def said(self) -> list[str]:
        """The lines that were completed since the last call."""
        data = os.pread(self.fd, KEPT_BYTES, self._at)
        if not data:
            return []
        self._at += len(data)
        if self._at >= KEPT_BYTES:
            os.ftruncate(self.fd, 0)
            self._at = 0
        *whole, self._begun = (self._begun + data).split(b"\n")
        lines = [line.decode(errors="replace") for line in whole]
        self.last += lines
        return lines
