"""Outputs of a batch run, written by the tasks themselves: nothing goes through the driver.

The same lines as those of a run on nodes: ``<sink>-spark-<task>.jsonl``, each in label order, and
all ``*.jsonl`` merged by ``t`` are the whole output. A file appears whole or not at all, and a
task that is tried again writes the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from engine.bundles import from_blob
from engine.codec import unpack
from engine.errors import StateMismatch
from engine.flow import Flow
from engine.operators import FAILURES
from engine.reference import Item
from engine.sinks.directory import make_directory, reported
from engine.sinks.jsonl import file_name
from engine.sinks.lines import DEAD_LETTERS, Lines
from pipeline.rows import LAST, OUTPUT, READ, SET_ASIDE, Batches, Row, read_rows, write_rows

WRITTEN = 0
"""What a row tells that a writer gives: so many outputs of a sink (`front`), in `time`."""


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """A directory for outputs; what was written is removed where the body fails.

    Raises StateMismatch if there are outputs already, Unavailable if it cannot be made.
    """
    with reported(directory):
        make_directory(directory / ".driftline")
        others = sorted(
            path for path in directory.iterdir() if path.suffix in (".jsonl", ".parquet")
        )
    if others:
        raise StateMismatch(
            f"{directory} already holds outputs, as {others[0].name}: give another --output, or "
            "remove it"
        )
    try:
        yield
    except BaseException:
        for path in [*directory.glob("*-spark-*"), *directory.glob("*/*spark-*")]:
            path.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class WriteLines:
    """Writes the outputs of a partition. Takes rows in the order of their times.

    Gives rows (WRITTEN, task, outputs, sink), (READ, ...), (LAST, ...) and
    (SET_ASIDE, task, records, front).
    """

    flow: Flow
    directory: Path

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        written: Counter[tuple[int, int]] = Counter()
        with _Files(self.flow, self.directory, task) as files:
            for (kind, time), found in groupby(rows, key=itemgetter(0, 2)):
                if kind == OUTPUT:
                    for item in in_order(found):
                        files.write(item)
                        written[WRITTEN, item.sink] += 1
                elif kind == SET_ASIDE:
                    for row in found:
                        files.set_aside(row[3], time, row[4])
                        written[SET_ASIDE, row[3]] += 1
                elif kind == READ:
                    for row in found:
                        written[READ, row[3]] += time
                else:
                    for row in found:
                        written[LAST, row[3]] = max(written[LAST, row[3]], time)
        for (kind, number), count in written.items():
            yield kind, task, count, number, b""


def in_order(rows: Iterator[Row]) -> list[Item]:
    """The outputs of one time, in label order; several rows are of different operators."""
    pieces = [from_blob(row[4]) for row in rows]
    if len(pieces) == 1:
        return pieces[0]
    return sorted((item for piece in pieces for item in piece), key=lambda item: item.label)


class Drafts:
    """Files of a task, under other names until all are complete."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[Path, Path] = {}

    def path(self, name: str) -> Path:
        """Where to write what will be the file `name`."""
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.new")
        self._names[draft] = path
        return draft

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for draft, path in self._names.items():
            if error is None:
                draft.replace(path)
            else:
                draft.unlink(missing_ok=True)


class _Files(Drafts):
    """The files of a task that writes the outputs of a flow."""

    def __init__(self, flow: Flow, directory: Path, task: int) -> None:
        super().__init__(directory)
        self._lines = Lines(flow)
        self._task = task
        self._open: dict[str, TextIO] = {}
        self._sinks: dict[int, TextIO] = {}

    def write(self, item: Item) -> None:
        """Add an output."""
        file = self._sinks.get(item.sink)
        if file is None:
            file = self._sinks[item.sink] = self._file(self._name(item.sink))
        file.write(self._lines.format(item) + "\n")

    def set_aside(self, front: int, time: int, payload: bytes) -> None:
        """Add a record that could not be read."""
        about = dict(zip(("record", "file", "reason", "text"), unpack(payload), strict=True))  # type: ignore[call-overload]
        name = f"{DEAD_LETTERS}/input-{front}-spark-{self._task:05}.jsonl"
        self._file(name).write(json.dumps(about, ensure_ascii=False) + "\n")

    def _name(self, sink: int) -> str:
        if sink == FAILURES:
            return f"{DEAD_LETTERS}/spark-{self._task:05}.jsonl"
        return f"{file_name(self._lines.names[sink])}-spark-{self._task:05}.jsonl"

    def _file(self, name: str) -> TextIO:
        if name not in self._open:
            self._open[name] = self.path(name).open("w", encoding="utf-8")
        return self._open[name]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._open.values():
            file.close()
        super().__exit__(kind, error, trace)
