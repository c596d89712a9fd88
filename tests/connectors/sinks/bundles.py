"""A flow, a stream of bundles for it, and what each connector has stored."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType

from driftline.connectors.sinks import Consumer, JsonLinesConsumer
from driftline.connectors.sinks.lmdb import LmdbConsumer, read_items
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item, from_blob, running_checksum, to_blob
from driftline.engine.wire.messages import Bundle
from driftline.simulation.world.filesystem import FileSystem

GROUPS = (0, 63)
BARRIER = "barrier-0"

FLOW = Flow("words")
_words = FLOW.source("words", fields=("word", "count"))
_words.sink("counts")
_words.map(lambda word: word).sink("слова/plain")

FAILURE = ("scan 'count'", "'a'", {"id": 1}, "ValueError: bad", "flow.py:1, in count: raise", "")


def stream(count: int, barrier: str = BARRIER) -> list[Bundle]:
    """Return bundles 0, 1, ... for both sinks; some have dead letters, some are empty."""
    bundles = []
    checksum = 0
    for number in range(count):
        blobs = []
        for time in range(10 * number + 1, 10 * number + 4 - number % 4):
            labels = [(time, 0, 0), (time, 0, 0, 7), (time, 0, 1)]
            sinks = [0, 1, FAILURES if number % 3 == 2 else 0]
            values = [(f"слово{time}", time), {"time": time, "tags": ["a", None]}, FAILURE]
            if sinks[2] != FAILURES:
                values[2] = ("x" * (time % 50), -time)
            blobs.append(to_blob(labels, sinks, values))
            checksum = running_checksum(checksum, blobs[-1])
        bundles.append(
            Bundle(barrier, 1, GROUPS, tuple(blobs), 10 * number + 9, checksum),
        )
    return bundles


def items(bundles: list[Bundle]) -> list[Item]:
    """Return the items of bundles."""
    return [item for bundle in bundles for blob in bundle.blobs for item in from_blob(blob)]


def json_lines(path: Path, barrier: str = BARRIER, identity: str = "me") -> JsonLinesConsumer:
    """Open the connector for files."""
    consumer = JsonLinesConsumer(path, barrier, FLOW, identity)
    try:
        consumer.discard()  # as delivery of the first bundle does
    except BaseException:
        consumer.close()
        raise
    return consumer


def in_lmdb(path: Path, barrier: str = BARRIER, identity: str = "me") -> LmdbConsumer:
    """Open the connector for LMDB."""
    return LmdbConsumer(path, barrier, FLOW, identity)


OPEN: dict[str, Callable[[Path], Consumer]] = {"json-lines": json_lines, "lmdb": in_lmdb}


def written(kind: str, path: Path) -> object:
    """Return what a reader finds: the bytes of files, or the items in LMDB."""
    if kind == "lmdb":
        return list(read_items(path))
    files = [*path.glob("*.jsonl")]
    # A dead letter that was never committed may leave an empty file.
    files += [file for file in path.glob("dead-letters/*.jsonl") if file.stat().st_size]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def uninterrupted(kind: str, path: Path, bundles: list[Bundle]) -> object:
    """Return what a reader finds after a run without failures."""
    consumer = OPEN[kind](path)
    for bundle in bundles:
        consumer.deliver(bundle)
    consumer.close()
    return written(kind, path)


# A process that delivers bundles until it is killed: ``python -m ... KIND DIRECTORY COUNT``


if __name__ == "__main__":
    kind, directory, count = sys.argv[1:]
    consumer = OPEN[kind](Path(directory))
    print("ready", flush=True)
    t_last = consumer.last(BARRIER, GROUPS).t_last
    for bundle in stream(int(count)):
        if bundle.t_last > t_last:
            consumer.deliver(bundle)
            print(bundle.t_last, flush=True)


# File system in which one chosen call fails, or is the last one before a power loss


class PowerLoss(Exception):
    """Simulated loss of power at this call."""


class Disk(FileSystem):
    """All files below one directory; a chosen call fails."""

    def __init__(self, root: Path, chance: Random) -> None:
        super().__init__(root, chance, self._error)
        self._calls = 0
        self._fail_at = -1
        self._raise: Exception | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self.close()

    def fail_at(self, call: int, error: Exception | None) -> None:
        """Let a call fail once, counted from 0 for the next one."""
        self._fail_at = self._calls + call
        self._raise = error

    def _error(self) -> Exception | None:
        self._calls += 1
        return self._raise if self._calls - 1 == self._fail_at else None
