"""The local cluster: the node and master processes of a run on this machine, kept alive.

A process that dies is started again; the coordinator does the rest. A process that cannot start,
or that dies again and again without a sign of life, ends the run with what it said.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections import deque
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from deploy.process import ProcessConfig
from engine.errors import Unavailable

MODULE = "deploy.process"
"""What a process runs."""

CANNOT_START = 2
"""Exit status of a process that says why it cannot start."""

RESTARTS_MAX = 5
RESTARTS_WITHIN_S = 2.0
"""More deaths of one process than this in this time are not an accident."""

ROOT = Path(__file__).resolve().parent.parent


class LocalCluster:
    """Node and master processes. A context manager: on leaving it they are ended."""

    def __init__(self, config: ProcessConfig) -> None:
        self.config = config
        self.kills = 0
        self.restarts = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._died: dict[str, deque[float]] = {}
        self._killed: set[str] = set()
        """Those whose death was our own doing."""
        self._asked_again = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as we do

    def __enter__(self) -> Self:
        for name in ["master", *(f"node-{i}" for i in range(self.config.nodes))]:
            self._start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(wait_s=0.0 if error is not None else 1.0)

    def supervise(self) -> None:
        """Restart what has died. Raises Unavailable if that does not help."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is None or status == 0:
                continue
            if status == CANNOT_START:
                raise Unavailable(f"{name} cannot start: {self._said()}")
            if name in self._killed:
                self._killed.remove(name)
            else:
                self._note_death(name, status)
            self.restarts += 1
            self._start(name)

    def _note_death(self, name: str, status: int) -> None:
        died = self._died.setdefault(name, deque(maxlen=RESTARTS_MAX))
        died.append(monotonic())
        if len(died) == RESTARTS_MAX and died[-1] - died[0] < RESTARTS_WITHIN_S:
            raise Unavailable(f"{name} dies again and again (status {status}): {self._said()}")

    def kill_one(self, chance: random.Random) -> str:
        """Kill -9 a random process. Returns its name."""
        name = chance.choice(sorted(self._processes))
        self._processes[name].kill()
        self._processes[name].wait()
        self.kills += 1
        self._killed.add(name)
        return name

    @property
    def master_ended(self) -> bool:
        """Whether the master has ended in good order."""
        return self._processes["master"].poll() == 0

    @property
    def nodes_ended(self) -> bool:
        """Whether all nodes have ended in good order."""
        nodes = [process for name, process in self._processes.items() if name != "master"]
        return all(node.poll() == 0 for node in nodes)

    def ask_again(self) -> None:
        """The master has ended, and we do not know why: another one can tell, by the registry.

        Raises Unavailable if that has been tried.
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
        """End all processes: those that do not end by themselves in time are killed."""
        deadline = monotonic() + wait_s
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str) -> None:
        role, _, index = name.partition("-")
        config = replace(self.config, role=role, index=int(index or 0))
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", MODULE, config.to_json()],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stderr=self._stderr,
        )

    def _said(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-5:]) or "it said nothing"
