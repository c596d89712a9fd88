"""`driftline serve` as a process, its parts by name, and whoever kills them."""

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
from tests.index.truth.running import Running

ROOT = Path(__file__).resolve().parents[3]

READY_S = 60.0

PARTS = "node-0", "node-1", "master", "journal", "documents-0", "documents-1", FORK_SERVER


class Service:
    """The command with a state directory; it may be started again and again, at one address."""

    def __init__(self, state: Path, *options: str) -> None:
        self.url = ""
        self.log = state.parent / f"{state.name}.log"
        self._state = state
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start it, and wait until it is ready. Returns how many seconds that took."""
        http = self.url.removeprefix("http://") or "127.0.0.1:0"
        command = [sys.executable, "-m", "driftline", "serve", "--state", str(self._state)]
        began = monotonic()
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
        return monotonic() - began

    def kill(self) -> None:
        """Kill the command itself; its children notice, and end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """End it in good order. Returns its status."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for its end. Returns its status."""
        assert self._process is not None
        return self._process.wait(timeout=READY_S)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def parts(self) -> dict[str, psutil.Process]:
        """The processes there are, by name."""
        assert self._process is not None
        return parts_of(self._process.pid)


@contextmanager
def served(service: Service) -> Iterator[Service]:
    """Start a service; at the end of the block it has to end in good order."""
    service.start()
    try:
        yield service
        assert service.end() == 0, service.log.read_text()
    finally:
        service.close()


def parts_of(pid: int) -> dict[str, psutil.Process]:
    """The children of a process, and of its fork server, by name."""
    found = {}
    left = psutil.Process(pid).children()
    for each in left:
        with suppress(psutil.Error):
            name = each.name()
            found[name] = each
            if name == FORK_SERVER:
                left += each.children()
    return found


class Killer(Running):
    """Kills parts of a service, or all of it, and stops some for a while."""

    def __init__(self, service: Service, seed: int, pause_s: tuple[float, float]) -> None:
        super().__init__("killer")
        self.done: list[str] = []
        self.kills = 0
        self._service = service
        self._chance = Random(seed)
        self._pause_s = pause_s
        self._over = Event()

    def end(self) -> None:
        """Kill no more; all that was stopped goes on."""
        self._over.set()
        self.join()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        deeds = self.deeds()
        while not self._over.wait(self._chance.uniform(*self._pause_s)):
            deed = deeds.pop()
            if self.do(*deed):
                self.done.append(" ".join(deed))
                self.kills += deed[0] == "kill"
            deeds = deeds or self.deeds()

    def deeds(self) -> list[tuple[str, str]]:
        """All deeds, each once, in a random order."""
        deeds = [("kill", part) for part in (*PARTS, "journal", "all")]
        deeds += [("stop", part) for part in self._chance.sample(PARTS, 3)]
        self._chance.shuffle(deeds)
        return deeds

    def do(self, deed: str, name: str) -> bool:
        """Do one. Returns whether it was done: a part may be away, and being started again."""
        if name == "all":
            self._service.kill()
            self._service.start()
            return True
        process = self._service.parts().get(name)
        if process is None:
            return False
        try:
            if deed == "kill":
                process.kill()
            else:
                process.send_signal(signal.SIGSTOP)
                self._over.wait(self._chance.uniform(0.3, 3.0))
                process.send_signal(signal.SIGCONT)
        except psutil.NoSuchProcess:
            return False
        return True
