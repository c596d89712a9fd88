"""The destination of a run's outputs: a directory, or the address of a sink.

    >>> resolve_output("out", None)
    OutputPlace(address='jsonl:out', directory=PosixPath('out'))
    >>> resolve_output("python:shop.py:orders", Path("state"))
    OutputPlace(address='python:shop.py:orders', directory=PosixPath('state/outputs'))

An output directory, of JSON lines or LMDB, also holds the run's commit records. For other sinks
these are in a folder of the state directory (`sinks.recorded`).
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from driftline.connectors.registry import check_path, check_sink, open_sink, scheme_of
from driftline.connectors.sinks import jsonl, lmdb
from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.consumer import SinkContext
from driftline.connectors.sinks.jsonl import JsonLinesConsumer
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.connectors.sinks.lmdb import LmdbConsumer
from driftline.connectors.sinks.recorded import RecordedSink
from driftline.engine.errors import FlowError

JSON_LINES, LMDB = "jsonl", "lmdb"
"""The schemes of output directories."""

COMMIT_RECORDS = "outputs"
"""Folder of the state directory for commit records, unless an output directory has them."""


RecordingConsumer = JsonLinesConsumer | LmdbConsumer | RecordedSink
"""A consumer that stores commit records, and counts its `outputs` and `failures` (dead letters)."""


class OutputPlace(Struct, frozen=True):
    """The place of a run's outputs."""

    address: str
    """The address of the sink."""
    directory: Path
    """The directory for commit records, and for records that could not be read."""

    @property
    def is_directory(self) -> bool:
        """Whether the outputs themselves are in the directory, too."""
        return scheme_of(self.address) in (JSON_LINES, LMDB)

    @property
    def dead_letter_location(self) -> str:
        """The place of dead letters, in words."""
        if scheme_of(self.address) == JSON_LINES:
            return f"{self.directory}/{DEAD_LETTERS}"
        return f"{self.address}, as items with sink number -1"


def resolve_output(output: str, state: Path | None) -> OutputPlace:
    """Return the place that `output` names: a path (a directory of JSON lines), or an address.

    `state`: the state directory, if the user has named one. Raises FlowError if `output` is empty,
    if the path of a directory is not UTF-8, or if `state` is missing for a sink that is not a
    directory.
    """
    scheme = scheme_of(output)
    path = output.removeprefix(f"{scheme}:").removeprefix("//")
    if not path.strip():
        raise FlowError("the output is empty: give a directory, or the address of a sink")
    for directory in (Path(path), *([] if state is None else [state])):
        require_utf8(directory)
    if scheme in ("", JSON_LINES, LMDB):
        return OutputPlace(f"{scheme or JSON_LINES}:{path}", Path(path))
    if state is None:
        raise FlowError(
            f"{output} is not a directory, so the run needs another place for its state: give "
            "--state DIR (in Python state=)"
        )
    return OutputPlace(output, state / COMMIT_RECORDS)


def require_utf8(directory: Path) -> None:
    """Raise FlowError if a directory's path is not UTF-8, because files of the run contain it."""
    absolute = directory.absolute()
    try:
        str(absolute).encode()
    except UnicodeEncodeError:
        raise FlowError(
            f"the path of directory {str(absolute)!a} is not UTF-8: rename it, or give another path"
        ) from None


def resolve_checked_output(output: str, state: Path | None) -> OutputPlace:
    """Resolve an output as `resolve_output` does, and check that a connector can open it.

    Raises FlowError also for an address without a connector, and for a path that looks like an
    address with a mistyped scheme.
    """
    place = resolve_output(output, state)
    if not place.is_directory:
        check_sink(output)
    elif not scheme_of(output):
        check_path(output)
    return place


def open_consumer(address: str, context: SinkContext) -> RecordingConsumer:
    """Open the consumer that stores the outputs of a barrier (the last part of a node).

    Raises the errors of opening its directory. If the sink is not a directory, the first call of a
    method of the consumer opens the sink (`RecordedSink`), and raises the errors of its connector.
    """
    if (scheme := scheme_of(address)) == JSON_LINES:
        return jsonl.open_sink(address, context)
    if scheme == LMDB:
        return lmdb.open_sink(address, context)
    return RecordedSink(lambda sink_context: open_sink(address, sink_context), address, context)


def count_delivered(directory: Path) -> tuple[int, int]:
    """Return (outputs, dead letters) delivered so far, from the commit records in a directory.

    Precondition: no process writes there. Raises StateMismatch if a record is damaged, OSError.
    """
    records = _records_in(directory)
    return sum(record.outputs for record in records), sum(record.failures for record in records)


def _records_in(directory: Path) -> list[CommitRecord]:
    paths = sorted((directory / ".driftline").glob("barrier-*.progress"))
    records = [CommitRecord.decode(path.read_bytes(), str(path)) for path in paths]
    environments = sorted(path.parent for path in directory.glob("barrier-*/data.mdb"))
    return records + list(map(lmdb.read_commit_record, environments))
