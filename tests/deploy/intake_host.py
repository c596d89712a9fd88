"""A front's host without a front: ``python -m tests.deploy.intake_host DIRECTORY ADDRESS``.

It takes records, reads them, stores them, and has to be killed.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import time_ns

from deploy.intake import Intake
from deploy.runtime import Runtime
from engine.party import Party
from engine.sources.inputlog import InputLog
from engine.sources.received import ReceivedSource


def now_us() -> int:
    """The wall clock."""
    return time_ns() // 1000


class Reader(Party):
    """Reads what a front would read: everything, at once, as long as it wants to."""

    def __init__(self, source: ReceivedSource) -> None:
        super().__init__("reader")
        self.found: list[tuple[int, object]] = []
        self.reading = True
        self._records: Iterator[tuple[int, object] | None] = source.read(1)

    def turn(self) -> bool:
        while self.reading and (record := next(self._records, None)) is not None:
            self.found.append(record)
        return False


class Host:
    """A runtime with an intake and a reader."""

    def __init__(self, directory: Path, address: str, window: int = 4096) -> None:
        self.log = InputLog(directory, "test")
        self.source = ReceivedSource(self.log, now_us)
        self.reader = Reader(self.source)
        self.intake = Intake(self.source, address, window=window)
        self.runtime = Runtime(self.log.carry_out)
        self.runtime.add(self.reader, "inproc://reader")
        self.runtime.watch(self.intake, self.intake.socket, self.intake.drain, self.intake.room)

    def close(self) -> None:
        """Release everything."""
        self.runtime.close(linger_ms=0)
        self.intake.close(linger_ms=0)
        self.log.close()


if __name__ == "__main__":
    parent = os.getppid()
    Host(Path(sys.argv[1]), sys.argv[2]).runtime.run(lambda: os.getppid() != parent)
