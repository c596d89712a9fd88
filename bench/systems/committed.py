"""The outputs of a directory of JSON lines, as they are committed.

An output has arrived once it is committed: lines that are there before may be cut off by a
recovery. A commit replaces the commit record of its barrier, which has the lengths of the files; so
they are read once, up to there, and an output that is there twice is seen twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from time import perf_counter

from driftline.bench.measuring.meter import Arrival
from driftline.engine.sinks.commit_record import CommitRecord


class Committed:
    """Reads the outputs of the inverted index on so many nodes."""

    def __init__(self, directory: Path, nodes: int, numbers: Mapping[str, int]) -> None:
        """`numbers`: the number of each document."""
        hidden = directory / ".driftline"
        self._directory = directory
        self._records = [hidden / f"barrier-{number}.progress" for number in range(nodes)]
        self._seen: dict[Path, tuple[int, int]] = {}
        """Which record was read last: each is a file of its own."""
        self._read: dict[str, int] = {}
        """How many bytes of a file were read."""
        self._numbers = numbers

    @property
    def news(self) -> bool:
        """Whether something was committed since the last look."""
        return any(_file(path) != self._seen.get(path) for path in self._records)

    def arrivals(self) -> Iterator[Arrival]:
        """The outputs that were committed since the last look."""
        for path in self._records:
            file = _file(path)
            if file is None or file == self._seen.get(path):
                continue
            self._seen[path] = file
            record = CommitRecord.decode(path.read_bytes(), str(path))
            for name, length, _ in record.files:
                yield from self._arrived(name, length)

    def _arrived(self, name: str, length: int) -> Iterator[Arrival]:
        begin = self._read.get(name, 0)
        with (self._directory / name).open("rb") as lines:
            lines.seek(begin)
            values = [json.loads(line)["value"] for line in lines.read(length - begin).splitlines()]
        self._read[name] = length
        for document, of_it in groupby(values, key=lambda value: str(value["document"])):
            yield self._numbers[document], [value["word"] for value in of_it], perf_counter()


def _file(path: Path) -> tuple[int, int] | None:
    """What tells a record from the one before; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
