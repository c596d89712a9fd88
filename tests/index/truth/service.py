"""`driftline serve` as a process, and a thread that injects faults into its processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic

import psutil

from driftline.deploy.runtime.supervision.fork_server import FORK_SERVER
from tests.index.truth.background_thread import BackgroundThread

ROOT = Path(__file__).resolve().parents[3]

READY_S = 60.0

PROCESS_NAMES = "node-0", "node-1", "master", "journal", "documents-0", "documents-1", FORK_SERVER


class ServiceProcess:
    """`driftline serve` with a state directory; a restart uses the same address."""

    def __init__(self, state: Path, *options: str) -> None:
        self.url = ""
        self.log = state.parent / f"{state.name}.log"
        self._state = state
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start the service, wait until it is ready, and return the seconds that this took."""
        http = self.url.removeprefix("http://") or "127.0.0.1:0"
        command = [sys.executable, "-m", "driftline", "serve", "--state", str(self._state)]
        started_s = monotonic()
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--http", http, *self._options],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready: "), self.log.read_text()[-4000:]
        self.url = line.removeprefix("ready: ").strip()
        return monotonic() - started_s

    def kill(self) -> None:
        """Kill the command; its children detect this and exit."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """Shut the service down with SIGTERM and return its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait until the service exits and return its exit status."""
        assert self._process is not None
        return self._process.wait(timeout=READY_S)

    def close(self) -> None:
        """Kill the service if it is still running."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def processes(self) -> dict[str, psutil.Process]:
        """Return the running child processes by name."""
        assert self._process is not None
        return processes_of(self._process.pid)


@contextmanager
def served(service: ServiceProcess) -> Iterator[ServiceProcess]:
    """Start a service; at the end of the block, check that it shuts down with status 0."""
    service.start()
    try:
        yield service
        assert service.terminate() == 0, service.log.read_text()
    finally:
        service.close()


def processes_of(pid: int) -> dict[str, psutil.Process]:
    """Return the children of a process and of its fork server, by name."""
    found = {}
    pending = psutil.Process(pid).children()
    for each in pending:
        with suppress(psutil.Error):
            name = each.name()
            found[name] = each
            if name == FORK_SERVER:
                pending += each.children()
    return found


class FaultInjector(BackgroundThread):
    """Thread that kills processes of a service, or the whole service, and suspends others."""

    def __init__(self, service: ServiceProcess, seed: int, pause_s: tuple[float, float]) -> None:
        super().__init__("fault injector")
        self.injected: list[str] = []
        self.kill_count = 0
        self._service = service
        self._rng = Random(seed)
        self._pause_s = pause_s
        self._stop = Event()

    def stop(self) -> None:
        """Stop after the current fault and resume the suspended process."""
        self._stop.set()
        self.join()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        faults = self.draw_faults()
        while not self._stop.wait(self._rng.uniform(*self._pause_s)):
            fault = faults.pop()
            if self.inject(*fault):
                self.injected.append(" ".join(fault))
                self.kill_count += fault[0] == "kill"
            faults = faults or self.draw_faults()

    def draw_faults(self) -> list[tuple[str, str]]:
        """Return (fault, process name) pairs, each once, in random order."""
        faults = [("kill", name) for name in (*PROCESS_NAMES, "journal", "all")]
        faults += [("stop", name) for name in self._rng.sample(PROCESS_NAMES, 3)]
        self._rng.shuffle(faults)
        return faults

    def inject(self, fault: str, name: str) -> bool:
        """Inject a fault; return False if the process was not running, for example restarting."""
        if name == "all":
            self._service.kill()
            self._service.start()
            return True
        process = self._service.processes().get(name)
        if process is None:
            return False
        try:
            if fault == "kill":
                process.kill()
            else:
                process.send_signal(signal.SIGSTOP)
                self._stop.wait(self._rng.uniform(0.3, 3.0))
                process.send_signal(signal.SIGCONT)
        except psutil.NoSuchProcess:
            return False
        return True
