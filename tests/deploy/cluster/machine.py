"""Cluster on this machine: real agents and a real ZooKeeper server."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, chdir, closing
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from driftline.deploy.cluster.status import status_of
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from tests.deploy.local.command import call
from tests.zookeepers import SESSION_S, Ensemble, make_cluster

COMMAND = str(Path(sys.executable).with_name("driftline"))

LIMIT_S = 90.0

KINDS = "master", "node", "front"
"""Agents with one role each, named after it, so that a test can kill all processes of the role."""

ALL = ("all",)
"""One agent with all roles."""


class Machine:
    """Cluster of agents; a context manager that stops them all at the end of its block."""

    def __init__(
        self,
        folder: Path,
        ensemble: Ensemble,
        kinds: Sequence[str] = KINDS,
        options: Sequence[str] = (),
        *,
        network: TransportConfig = LOCAL,
        session_s: float = SESSION_S,
    ) -> None:
        """Create a cluster with one agent for each of `kinds` (see `start`).

        Each agent gets `options`. `status` queries processes over `network`.
        """
        self.folder = folder
        self.zookeeper = f"{ensemble.addresses}/{folder.name}"
        self.place: Sequence[str] = ("--zookeeper", self.zookeeper, "--session", str(session_s))
        self.output = folder / "out"
        self._kinds = kinds
        self._options = options
        self._network = network
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: Counter[str] = Counter()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        make_cluster(self.zookeeper)
        self._tree = self._stack.enter_context(closing(ZooKeeperTree(self.zookeeper, LIMIT_S)))
        # a short path, because the length of socket names is limited
        self._sockets = Path(tempfile.mkdtemp())
        self._stack.callback(shutil.rmtree, self._sockets)
        for kind in self._kinds:
            self.start(kind)
        self.all_run()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for agent in self._agents.values():
            agent.terminate()
        for agent in self._agents.values():
            agent.wait(LIMIT_S)
        self._stack.close()

    def start(self, kind: str, name: str = "", *more: str) -> None:
        """Start an agent with a role, or with all roles ("all").

        It is named after the role by default; `more` are further options.
        """
        name = name or kind
        log = (self.folder / f"{name}.log").open("ab")
        self._starts[name] += 1
        roles = () if kind in ALL else ("--roles", kind)
        options = *self.place, *roles, *more, "--name", name, "--state", self.folder / name
        self._agents[name] = subprocess.Popen(
            [COMMAND, "agent", *map(str, options), *self._options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
        )

    def kill(self, kind: str) -> None:
        """Kill an agent with signal 9."""
        self._agents[kind].send_signal(signal.SIGKILL)
        self._agents[kind].wait()

    def all_run(self) -> None:
        """Wait until all agents run.

        The record of a killed agent remains until its session expires.
        """
        for name, count in self._starts.items():
            self.until(lambda: self.log(name).count(" is running; ") == count, name)  # noqa: B023

    def pid(self, name: str) -> int:
        """Return the process id of an agent."""
        return self._agents[name].pid

    def command(self, name: str, *arguments: object, status: int = 0) -> str:
        """Run a cluster command in this process and return its output."""
        with chdir(self.folder):
            done = call(name, *map(str, arguments), *self.place)
        assert done.returncode == status, f"{name}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        """Return the output of `driftline status --json`."""
        found = status_of(self._tree, self._sockets, self._network)
        return dict(json.loads(json.dumps(found.as_json())))

    def flow(self, name: str) -> dict[str, Any]:
        """Return the status of one flow."""
        [found] = [flow for flow in self.status()["flows"] if flow["name"] == name]
        return dict(found)

    def over(self, name: str) -> None:
        """Wait until a flow is over."""
        self.until(lambda: bool(self.flow(name)["over"]), f"the end of {name}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        give_up_at = monotonic() + LIMIT_S
        while not condition():
            assert monotonic() < give_up_at, f"not within {LIMIT_S} s: {what}\n{self.logs()}"
            sleep(0.05)

    def values(self, output: Path | None = None) -> list[object]:
        """Return the values of all outputs, in arbitrary order."""
        files = (output or self.output).glob("*.jsonl")
        whole = (file.read_text().rpartition("\n")[0] for file in files)
        return [json.loads(line)["value"] for text in whole for line in text.splitlines()]

    def listening(self) -> list[str]:
        """Return the addresses at which fronts listen for producers, in order of their start."""
        return re.findall(r"listening for producers on (\S+)", self.logs())

    def log(self, name: str) -> str:
        """Return the log of an agent."""
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        """Return the logs of all agents."""
        return "\n".join(f"== {log.name}\n{log.read_text()}" for log in self.folder.glob("*.log"))
