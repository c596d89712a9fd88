"""A cluster on this machine: real agents, with the registry in a directory."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from tests.zookeepers import make_cluster

COMMAND = str(Path(sys.executable).with_name("driftline"))

LIMIT_S = 90.0

KINDS = "master", "node", "front"


class Machine:
    """One agent of each kind. A context manager: on leaving it everything ends."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[str] = KINDS,
        options: Sequence[str] = (),
        place: Sequence[str] = (),
    ) -> None:
        """`options`: of each agent; `place`: those that name the cluster, if that is not in a
        directory."""
        self.folder = folder
        self._options = options
        self.output = folder / "out"
        self._kinds = kinds
        self.place = place or ("--registry", str(folder / "reg"))
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        (self.folder / "reg").mkdir()  # which commands do not make
        if self.place[0] == "--zookeeper":
            make_cluster(self.place[1])
        for kind in self._kinds:
            self.start(kind)
        self.until(lambda: len(self.status()["agents"]) == len(self._kinds), "all agents")
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

    def start(self, kind: str, name: str = "", *more: str) -> None:
        """Start an agent; its name is the kind, if it is given no other one; `more`: options."""
        name = name or kind
        log = (self.folder / f"{name}.log").open("ab")
        options = *self.place, *more, "--name", name, "--state", self.folder / name
        self._agents[name] = subprocess.Popen(
            [COMMAND, kind, *map(str, options), *self._options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
        )

    def kill(self, kind: str) -> None:
        """Kill -9 an agent."""
        self._agents[kind].send_signal(signal.SIGKILL)
        self._agents[kind].wait()

    def pid(self, name: str) -> int:
        """The process of an agent."""
        return self._agents[name].pid

    def command(self, name: str, *arguments: object, status: int = 0) -> str:
        """Run a command of the cluster. Returns what it prints."""
        done = subprocess.run(
            [COMMAND, name, *map(str, arguments), *self.place],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            timeout=LIMIT_S,
        )
        assert done.returncode == status, f"{name}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout + done.stderr

    def status(self, *options: str) -> dict[str, Any]:
        """What `driftline status` says."""
        file = self.folder / "status.json"
        self.command("status", "--json", file, *options)
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def flow(self, name: str) -> dict[str, Any]:
        """What `driftline status` says of a flow."""
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
        """The values of all outputs, in no order."""
        files = (output or self.output).glob("*.jsonl")
        return [json.loads(line)["value"] for f in files for line in f.read_text().splitlines()]

    def listening(self) -> list[str]:
        """The addresses at which fronts listen for producers, in the order of their beginning."""
        return re.findall(r"listening for producers on (\S+)", self.logs())

    def log(self, name: str) -> str:
        """What an agent has said."""
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        """What all agents have said."""
        return "\n".join(f"== {log.name}\n{log.read_text()}" for log in self.folder.glob("*.log"))
