"""Host of a front, without the front: in a thread, in steps, or in a process that can be killed.

The process is ``python -m tests.deploy.roles.intake_host DIRECTORY ADDRESS``: it receives, reads
and stores records until it is killed, or its parent has exited.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, time_ns
from types import TracebackType
from typing import Self

import zmq

from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.intake import MAGIC, IntakeKind, IntakeReply, decode_answer
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.intake_socket import IntakeSocket, Keys
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.role import Role

SOON_S = 5.0


def label_clock_us() -> int:
    """Return the time of the wall clock."""
    return time_ns() // 1000


class Reader(Role):
    """Role that reads all available records at once, as a front would, while `reading` is set."""

    def __init__(self, source: ReceivedSource) -> None:
        super().__init__("reader")
        self.found: list[tuple[int, object]] = []
        self.reading = True
        self._records: Iterator[tuple[int, object] | BadRecord | None] = source.entries(1)

    def turn(self) -> bool:
        while self.reading and (record := next(self._records, None)) is not None:
            assert not isinstance(record, BadRecord)
            self.found.append(record)
        return False


class IntakeHost:
    """Runtime with an intake and a reader."""

    def __init__(
        self, directory: Path, address: str, window: int = 4096, keys: Keys | None = None
    ) -> None:
        self.log = InputLog(directory, "test")
        self.source = ReceivedSource(self.log, label_clock_us)
        self.reader = Reader(self.source)
        self.intake = IntakeSocket(self.source, address, window=window, keys=keys)
        self.runtime = Runtime(self.log.execute_job)
        self.runtime.add(self.reader, "inproc://reader")
        self.runtime.add_with_input(
            self.intake,
            self.intake.socket,
            self.intake.handle_input,
            has_work=self.intake.has_work,
        )

    def close(self) -> None:
        """Close sockets and files."""
        self.runtime.close(linger_ms=0)
        self.intake.close(linger_ms=0)
        self.log.close()


class HostThread:
    """Host that runs in a thread. A context manager."""

    def __init__(self, host: IntakeHost) -> None:
        self.host = host
        self._stop = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop = True
        self._thread.join()

    def _run(self) -> None:
        while not self._stop:
            self.host.runtime.step(wait_s=0.02)


class RawProducer:
    """Producer that sends exactly the given messages; the host takes turns meanwhile."""

    def __init__(self, host: IntakeHost) -> None:
        self.host = host
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(host.intake.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.context.destroy(linger=0)

    def send(self, kind: IntakeKind, producer: str, session: int, *rest: object) -> None:
        self.socket.send(pack((MAGIC, kind, producer, session, *rest)))

    def receive(self) -> tuple[IntakeKind, int, int]:
        """Return the next answer: kind, session, acknowledged.

        Skip keep-alives, which acknowledge nothing and are sent if the disk takes a second.
        """
        while (heard := self.receive_all_fields()[:3])[0] is IntakeKind.ACK and heard[2] == 0:
            pass
        return heard

    def receive_all_fields(self) -> IntakeReply:
        """Return the next answer with all its fields."""
        self.until(lambda: bool(self.socket.poll(0)))
        return decode_answer(self.socket.recv())

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the host run until a condition holds."""
        deadline = monotonic() + SOON_S
        while not condition():
            assert monotonic() < deadline, "no answer arrived"
            self.host.runtime.step(wait_s=0.005)


def stored(log: InputLog) -> list[tuple[str, int, object]]:
    """Return all entries of a log."""
    return [(entry.producer, entry.sequence, unpack(entry.data)) for entry in log.read(0)]


class HostProcess:
    """Host in its own process, which a test can kill. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"ipc://{directory}/intake"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.deploy.roles.intake_host",
                str(self.directory / "log"),
                self.address,
            ]
        )

    def kill(self) -> None:
        """Kill the process with signal 9."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


if __name__ == "__main__":
    parent = os.getppid()
    IntakeHost(Path(sys.argv[1]), sys.argv[2]).runtime.run(lambda: os.getppid() != parent)
