"""A log with its source, and what a runtime does for them, without a runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import ReceivedSource
from driftline.engine.event_time import EventTime
from driftline.engine.sources import BadRecord


class Clock:
    """Microseconds, set by hand."""

    def __init__(self, now: int = 1000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Front:
    """A log with its source, and what a runtime does for them."""

    def __init__(self, path: Path, clock: Clock, event_time: EventTime | None = None) -> None:
        self.log = InputLog(path, "flow")
        self.source = ReceivedSource(self.log, clock, event_time=event_time)

    def commit(self) -> list[str]:
        """Write everything. Returns the producers to acknowledge, in order."""
        producers: list[str] = []
        while (group := self.source.next_group()) is not None:
            self.log.write(group)
            producers += self.source.mark_written(group)
            self.source.validate()
        return producers

    def restarted(self, clock: Clock) -> Front:
        """The front after a crash."""
        self.log.close()
        return Front(Path(self.log.name), clock, self.source.event_time)


def taken(records: Iterator[tuple[int, object] | BadRecord | None]) -> list[tuple[int, object]]:
    """What there is at the moment."""
    found = []
    for record in records:
        if record is None:
            break
        assert not isinstance(record, BadRecord)
        found.append(record)
    return found


# Directories that cost no fsync: for tests of what is written, not of what a disk does


@contextmanager
def memory_disk() -> Iterator[Path]:
    """A temporary directory, in memory where there is such a thing."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
