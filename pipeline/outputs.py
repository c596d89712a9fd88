"""The outputs of a batch run, which tasks write without the driver.

The lines equal those of a run on nodes. A task writes its part of a sink's outputs in label order
to ``<sink>-spark-<task>.jsonl``; the files of a sink, merged by ``t``, are its whole output. Files
appear atomically, and a retried task writes the same files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from msgspec import Struct

from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.consumer import LastStored
from driftline.connectors.sinks.directory import IDENTITY, SPARK_RECORD
from driftline.connectors.sinks.jsonl import checksum_of
from driftline.connectors.sinks.lines import DEAD_LETTERS, JsonLines
from driftline.engine.durable import make_directory, replace_file, translate_os_errors
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.texts import escape_file_name
from driftline.engine.wire.bundles import Item, from_blob
from driftline.pipeline.tasks import (
    EVENT_TIME,
    LAST,
    OUTPUT,
    READ,
    SET_ASIDE,
    Batches,
    Row,
    read_rows,
    write_rows,
)

WRITTEN = 0
"""Kind of a row that counts outputs: `time` is their number, `front` the number of the sink."""


@contextmanager
def claim_directory(directory: Path) -> Iterator[None]:
    """Make a directory for outputs; if the body raises, remove the outputs written so far.

    Raises StateMismatch if the directory already holds outputs, Unavailable if it cannot be made.
    """
    with translate_os_errors("output", directory):
        make_directory(directory / ".driftline")
        existing_outputs = sorted(
            path
            for path in [*directory.iterdir(), *(directory / ".driftline").iterdir()]
            if path.suffix in (".jsonl", ".parquet") or path.name in (IDENTITY, SPARK_RECORD)
        )
    if existing_outputs:
        raise StateMismatch(
            f"{directory} already holds outputs, such as {existing_outputs[0].name}: give another "
            "--output, or remove the directory"
        )
    try:
        yield
    except BaseException:
        for path in [*directory.glob("*-spark-*"), *directory.glob("*/*spark-*")]:
            path.unlink(missing_ok=True)
        raise


def write_commit_record(
    directory: Path, end: int, outputs: int, failures: int, savepoint: Path | None
) -> None:
    """Write the commit record of a batch run; a later run in the directory begins at time `end`.

    `outputs`: number of outputs, without dead letters; `failures`: number of dead letters;
    `savepoint`: the directory with the state as of `end`, or None. The record is the last file that
    a run writes, so outputs without a record are those of an interrupted run. Raises Unavailable.
    """
    with translate_os_errors("output", directory):
        files = []
        for path in sorted([*directory.glob("*-spark-*"), *directory.glob("*/*spark-*")]):
            size = path.stat().st_size
            files.append((str(path.relative_to(directory)), size, checksum_of(path, size)))
        record = CommitRecord(
            last=LastStored(end - 1, 0, ()),
            files=tuple(files),
            outputs=outputs,
            failures=failures,
            savepoint="" if savepoint is None else str(savepoint.absolute()),
        )
        replace_file(directory / ".driftline" / SPARK_RECORD, record.encode())


class WriteLines(Struct, frozen=True):
    """Task that writes the outputs of a partition, and its records that could not be read.

    Input: rows of results (see `pipeline.tasks`) in the order of (to, time).
    Output: rows (WRITTEN, task, number of outputs, sink), (SET_ASIDE or READ, task, number of
    records, front), (LAST, task, largest time, front), and (EVENT_TIME, task, time, front), with
    `time` and `front` of the input row. Raises PayloadError for an output that JSON cannot
    represent, without `dead_letters`.
    """

    flow: Flow
    directory: Path
    dead_letters: bool = False

    def __call__(self, batches: Batches) -> Batches:
        return write_rows(self._rows(read_rows(batches)))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        results: Counter[tuple[int, int]] = Counter()
        """(kind, front or sink) -> the column `time` of the row to yield."""
        lines = JsonLines(self.flow, self.dead_letters)
        names = {
            number: f"{escape_file_name(name)}-spark-{task:05}.jsonl"
            for number, name in lines.names.items()
        }
        names[FAILURES] = f"{DEAD_LETTERS}/spark-{task:05}.jsonl"
        with Drafts(self.directory) as drafts:
            for (kind, time), rows_of_time in groupby(rows, key=itemgetter(0, 2)):
                if kind == OUTPUT:
                    for item, line in map(lines.encode_item, sort_items(rows_of_time)):
                        drafts.add_line(names[item.sink], line)
                        results[WRITTEN, item.sink] += 1
                elif kind == SET_ASIDE:
                    for row in rows_of_time:
                        drafts.add_line(bad_records_file(row[3], task), row[4].decode())
                        results[SET_ASIDE, row[3]] += 1
                elif kind == EVENT_TIME:
                    for row in rows_of_time:
                        results[EVENT_TIME, row[3]] = time
                elif kind == READ:
                    for row in rows_of_time:
                        results[READ, row[3]] += time
                else:
                    for row in rows_of_time:
                        results[LAST, row[3]] = max(results[LAST, row[3]], time)
        for (kind, number), result in results.items():
            yield kind, task, result, number, b""


def bad_records_file(front: int, task: int) -> str:
    """Return the name of a task's file of records that could not be read."""
    return f"{DEAD_LETTERS}/input-{front}-spark-{task:05}.jsonl"


def sort_items(rows: Iterator[Row]) -> list[Item]:
    """Return the outputs of one time in label order; each row holds some of them, in this order."""
    blobs = [from_blob(row[4]) for row in rows]
    if len(blobs) == 1:
        return blobs[0]
    return sorted((item for blob in blobs for item in blob), key=lambda item: item.label)


class Drafts:
    """The files of a task, under temporary names until all of them are complete.

    A context manager: at its end it renames the files, or removes them if the body has raised.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._final_paths: dict[Path, Path] = {}
        """Temporary path -> final path."""
        self._open_files: dict[str, TextIO] = {}
        """By final name."""

    def path(self, name: str) -> Path:
        """Return the temporary path of the file `name`, and create its directory."""
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.new")
        self._final_paths[draft] = path
        return draft

    def add_line(self, name: str, line: str) -> None:
        """Append a line to the file `name`; the first line creates it."""
        file = self._open_files.get(name)
        if file is None:
            file = self._open_files[name] = self.path(name).open("w", encoding="utf-8")
        file.write(line + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._open_files.values():
            file.close()
        for draft, path in self._final_paths.items():
            if error is None:
                draft.replace(path)
            else:
                draft.unlink(missing_ok=True)
