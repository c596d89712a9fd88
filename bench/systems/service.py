"""A service under measurement: a real `driftline serve`, as a user starts it.

The service has its own process group, a free port, and a temporary state directory. Memory and CPU
time are those of its processes; other figures come from `GET /metrics`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import psutil

from driftline.bench.systems.processes import StartedProcesses
from driftline.deploy.runtime.supervision.fork_server import FORK_SERVER
from driftline.engine.errors import Unavailable
from driftline.serve.http.metrics import figures_in

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
GATEWAY = "gateway"
"""Name of the main process of `driftline serve`, which runs HTTP, front and input log."""

MIB = 1 << 20


class ServedIndex(StartedProcesses):
    """A `driftline serve` process and its children, which serve an index.

    `nodes`, `searchers`: numbers of node and searcher processes; each searcher has one shard.
    `options`: more options of `driftline serve`.
    """

    def __init__(self, nodes: int = 1, searchers: int = 1, options: Sequence[str] = ()) -> None:
        self.url = ""
        self._options = ["--nodes", str(nodes), "--searchers", str(searchers), *options]
        self._directory = TemporaryDirectory(prefix="driftline-bench-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def directory(self) -> Path:
        """Directory that contains the state directory `state` and the log file `log`."""
        return Path(self._directory.name)

    def start(self) -> None:
        state, log_path = self.directory / "state", self.directory / "log"
        command = [sys.executable, "-m", "driftline", "serve", "--http", "127.0.0.1:0"]
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--state", str(state), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        line = self._first_line()
        if not line.startswith("ready: "):
            raise Unavailable(
                f"driftline serve exited, or was not ready within {START_TIMEOUT_S:g} s; its log "
                "ends with:\n" + log_path.read_text(errors="replace")[-2000:]
            )
        self.url = line.removeprefix("ready: ").strip()

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the figures of `GET /metrics`: part of the service -> name -> value."""
        with urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return figures_in(answer.read().decode())

    def processes(self) -> dict[str, psutil.Process]:
        """Return the service's processes by name, without forked copies that write checkpoints."""
        assert self._process is not None
        gateway = psutil.Process(self._process.pid)
        children = {each.name(): each for each in gateway.children()}
        nodes = {each.name(): each for each in children[FORK_SERVER].children()}
        return {GATEWAY: gateway, **children, **nodes}

    def memory_mib(self) -> dict[str, float]:
        """Return the resident memory of each process, in MiB."""
        return {name: each.memory_info().rss / MIB for name, each in self.processes().items()}

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds of each process so far."""
        return {name: sum(each.cpu_times()[:2]) for name, each in self.processes().items()}

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the remaining processes of the group
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._directory.cleanup()

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        return self._process.stdout.readline().decode() if readable else ""
