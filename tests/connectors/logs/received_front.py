"""An input log and its source, driven as a runtime does, without a runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import ReceivedSource
from driftline.engine.event_time import EventTime
from driftline.engine.sources import BadRecord


class MicrosecondClock:
    """Clock in microseconds that a test sets."""

    def __init__(self, now: int = 1000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class ReceivingFront:
    """An input log and its source, driven as a runtime does."""

    def __init__(
        self, path: Path, clock: MicrosecondClock, event_time: EventTime | None = None
    ) -> None:
        self.log = InputLog(path, "flow")
        self.source = ReceivedSource(self.log, clock, event_time=event_time)

    def commit(self) -> list[str]:
        """Write all groups; return the producers to acknowledge, in order."""
        producers: list[str] = []
        while (group := self.source.next_group()) is not None:
            self.log.write(group)
            producers += self.source.mark_written(group)
            self.source.validate()
        return producers

    def restarted(self, clock: MicrosecondClock) -> ReceivingFront:
        """Return the front after a crash and restart."""
        self.log.close()
        return ReceivingFront(Path(self.log.name), clock, self.source.event_time)


def available_records(
    records: Iterator[tuple[int, object] | BadRecord | None],
) -> list[tuple[int, object]]:
    """Return the records that are available now."""
    found = []
    for record in records:
        if record is None:
            break
        assert not isinstance(record, BadRecord)
        found.append(record)
    return found


# Directories without fsync costs, for tests that do not depend on the disk


@contextmanager
def memory_disk() -> Iterator[Path]:
    """Provide a temporary directory, in memory if possible."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
