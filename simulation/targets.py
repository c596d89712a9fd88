"""Targets: the real consumers of a simulated run, over storage that survives simulated crashes.

Most scenarios deliver to memory. Others deliver to JSON lines, in a file system that loses power,
or to LMDB. Their files are in a temporary directory (in main memory if the machine has /dev/shm).
"""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol

from driftline.connectors.sinks import (
    Consumer,
    JsonLines,
    JsonLinesConsumer,
    LastStored,
    MemoryConsumer,
)
from driftline.connectors.sinks.lmdb import LmdbConsumer, read_environment
from driftline.engine.errors import Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Bundle
from driftline.simulation.world.disks import flipped
from driftline.simulation.world.filesystem import FileSystem
from driftline.simulation.world.timeline import Crashed, Timeline

IDENTITY = "simulated"
"""The identity of flow and input that consumers record."""
IN_MEMORY = Path("/dev/shm")
"""A directory in main memory, if the machine has it."""


class Target(Protocol):
    """Storage for the outputs of all barriers."""

    def consumer(self, barrier: str) -> Consumer:
        """Return the consumer of a barrier, for the current process."""

    def handle_restart(self, barriers: list[str], power: bool) -> None:
        """Handle the restart of these consumers' process; `power`: whether power had failed."""

    def flip_bit(self, rng: Random) -> str:
        """Flip a bit of a record. Return the name of the damaged file; "" if none was damaged."""

    def delivered(self) -> dict[str, list[Item]]:
        """Return all stored items by barrier, or by file; each list in the stored order."""

    def as_stored(self, item: Item) -> Item:
        """Return the item as `delivered` returns it once it is stored."""

    def value(self, item: Item) -> object:
        """Return the payload of an item from `delivered`."""

    def close(self) -> None:
        """Remove all files."""


class MemoryTarget:
    """One consumer in memory for all barriers; it survives the crashes of simulated processes."""

    def __init__(self) -> None:
        self._consumer = MemoryConsumer()

    def consumer(self, barrier: str) -> Consumer:
        return self._consumer

    def handle_restart(self, barriers: list[str], power: bool) -> None:
        pass

    def flip_bit(self, rng: Random) -> str:
        return ""

    def delivered(self) -> dict[str, list[Item]]:
        return self._consumer.by_barrier

    def as_stored(self, item: Item) -> Item:
        return item

    def value(self, item: Item) -> object:
        return item.value

    def close(self) -> None:
        pass


class _DirectoryTarget:
    """Base of targets in a temporary directory, with a consumer per barrier."""

    def __init__(self) -> None:
        parent = IN_MEMORY if IN_MEMORY.is_dir() else None
        self._directory = tempfile.TemporaryDirectory(prefix="driftline-simulation-", dir=parent)
        self.path = Path(self._directory.name) / "out"
        self._open: dict[str, Consumer] = {}
        """Barrier -> its open consumer."""
        self._barriers: set[str] = set()
        """Barriers that have ever had a consumer."""

    def consumer(self, barrier: str) -> Consumer:
        if barrier not in self._open:
            self._open[barrier] = self._make(barrier)
            self._barriers.add(barrier)
        return self._open[barrier]

    def handle_restart(self, barriers: list[str], power: bool) -> None:
        for barrier in barriers:
            if barrier in self._open:
                self._open.pop(barrier).close()

    def close(self) -> None:
        self.handle_restart(list(self._open), power=False)
        self._directory.cleanup()

    def _make(self, barrier: str) -> Consumer:
        raise NotImplementedError


class LmdbTarget(_DirectoryTarget):
    """LMDB environment per barrier; a bundle is one transaction."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self._flow = flow

    def flip_bit(self, rng: Random) -> str:
        return ""  # LMDB has no checksums: a flipped bit may remain undetected

    def delivered(self) -> dict[str, list[Item]]:
        self.handle_restart(list(self._open), power=False)
        return {b: list(read_environment(self.path / b)) for b in sorted(self._barriers)}

    def as_stored(self, item: Item) -> Item:
        return item

    def value(self, item: Item) -> object:
        return item.value

    def _make(self, barrier: str) -> Consumer:
        return LmdbConsumer(self.path, barrier, self._flow, IDENTITY, map_size=1 << 22)


class FilesTarget(_DirectoryTarget):
    """JSON lines in a file system that fails and loses power.

    `delivered` returns items whose payload is their line; `value` decodes it.
    """

    def __init__(self, flow: Flow, timeline: Timeline) -> None:
        super().__init__()
        self._flow = flow
        self._lines = JsonLines(flow)
        self._timeline = timeline
        self.files = FileSystem(self.path.parent, timeline.rng, self._draw_error)

    def handle_restart(self, barriers: list[str], power: bool) -> None:
        super().handle_restart(barriers, power)
        if power and not self._open:  # an open consumer is in a process that has not crashed
            self._timeline.counted["power failure"] += 1
            self.files.lose_power()

    def flip_bit(self, rng: Random) -> str:
        records = sorted((self.path / ".driftline").glob("barrier-*.progress"))
        if not records:
            return ""
        record = rng.choice(records)
        record.write_bytes(flipped(record.read_bytes(), rng))
        return record.name

    def delivered(self) -> dict[str, list[Item]]:
        self.handle_restart(list(self._open), power=False)
        items = {}
        for barrier in sorted(self._barriers):
            consumer = JsonLinesConsumer(self.path, barrier, self._flow, IDENTITY)
            consumer.close()  # opening checks the files; after a run, nothing is uncommitted
            for sink, path in consumer.paths.items():
                if path.exists():
                    items[f"{barrier} in {path.name}"] = [
                        Item(tuple(json.loads(line)["t"]), sink, line)
                        for line in path.read_bytes().decode().split("\n")[:-1]
                    ]
        return items

    def as_stored(self, item: Item) -> Item:
        return Item(item.label, item.sink, self._lines.format(item))

    def value(self, item: Item) -> object:
        assert isinstance(item.value, str)
        value = json.loads(item.value)["value"]
        return _tuples(list(value.values()) if isinstance(value, dict) else value)

    def close(self) -> None:
        self.files.close()
        super().close()

    def _make(self, barrier: str) -> Consumer:
        with self.files:
            consumer = JsonLinesConsumer(self.path, barrier, self._flow, IDENTITY)
            return _FileSystemConsumer(consumer, self.files)

    def _draw_error(self) -> BaseException | None:
        timeline = self._timeline
        if timeline.happens(timeline.faults.crash_at_consumer / 4):
            return Crashed("in a file operation")
        if timeline.draw_fault(timeline.faults.job_fails / 8, "failed file operation"):
            return OSError(errno.EIO, "Input/output error")
        return None


class _FileSystemConsumer:
    """Consumer whose calls to the operating system go through the simulated file system."""

    def __init__(self, consumer: Consumer, files: FileSystem) -> None:
        self._consumer = consumer
        self._files = files

    def deliver(self, bundle: Bundle) -> None:
        with self._files:
            self._consumer.deliver(bundle)

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        with self._files:
            return self._consumer.last(barrier, groups)

    def close(self) -> None:
        self._consumer.close()


class FailingConsumer:
    """Consumer whose process may die before or after it stores a bundle.

    `deliver` may also raise Unavailable although the bundle is stored. `consumer`: returns the real
    consumer; `on_stored`: called after each stored bundle.
    """

    def __init__(
        self,
        consumer: Callable[[], Consumer],
        timeline: Timeline,
        on_stored: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._timeline = timeline
        self._on_stored = on_stored

    def deliver(self, bundle: Bundle) -> None:
        timeline, faults = self._timeline, self._timeline.faults
        timeline.failpoint(faults.crash_at_consumer, "before deliver")
        self._consumer().deliver(bundle)
        timeline.counted["delivered bundle"] += 1
        self._on_stored()
        timeline.failpoint(faults.crash_at_consumer, "after deliver")
        if timeline.draw_fault(faults.job_fails / 5, "failed deliver"):
            raise Unavailable("it is unknown whether the bundle was stored")

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        return self._consumer().last(barrier, groups)

    def close(self) -> None:
        pass


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
