"""What a consumer has, as lines with their labels: from JSON lines, LMDB, or Parquet.

Everything is read in pieces, in parallel, each in its own order, so that outputs out of order are
seen. Lines are those of `engine.sinks.lines`, whatever the consumer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.order.steps import FAILURES
from driftline.engine.sinks.jsonl import file_name
from driftline.engine.sinks.lines import DEAD_LETTERS, Lines
from driftline.engine.sources.files.splits import FileSplit, line_splits

Line = tuple[int, Label | None, str]
"""(sink, label, line); the label is None where there is none to be read."""

_NUMBERED = re.compile(r"(?P<sink>.*?)(?:-(?:spark-)?\d+)?\.jsonl")
_LABELLED = re.compile(r'\{"t": \[([0-9, ]+)\], "value": ')


class Piece(Protocol):
    """A part of what a consumer has; pieces of one `file` follow each other."""

    @property
    def file(self) -> str:
        """Where it is, for people."""

    def lines(self, flow: Flow) -> Iterator[Line]:
        """What is in it, in its order."""


@dataclass(frozen=True, slots=True)
class LinesPiece:
    """A part of a file of JSON lines."""

    file: str
    sink: int
    part: FileSplit

    def lines(self, flow: Flow) -> Iterator[Line]:
        for raw in self.part.lines():
            text = raw.decode("utf-8", "replace")
            yield self.sink, _label(text), text


@dataclass(frozen=True, slots=True)
class LmdbPiece:
    """The environment of one barrier."""

    file: str

    def lines(self, flow: Flow) -> Iterator[Line]:
        from driftline.engine.sinks.lmdb import read_environment

        lines = Lines(flow)
        for item in read_environment(Path(self.file)):
            yield item.sink, item.label, lines.format(item)


@dataclass(frozen=True, slots=True)
class ParquetPiece:
    """A Parquet file with the columns t (list of int), sink (its name), value (JSON)."""

    file: str

    def lines(self, flow: Flow) -> Iterator[Line]:
        from pyarrow.parquet import ParquetFile

        numbers = {name: number for number, name in Lines(flow).names.items()}
        with ParquetFile(self.file) as file:
            for batch in file.iter_batches(columns=["t", "sink", "value"]):
                columns = (column.to_pylist() for column in batch.columns)
                for label, sink, value in zip(*columns, strict=True):
                    if sink not in numbers:
                        raise StateMismatch(f"{self.file}: the flow has no sink {sink!r}")
                    yield numbers[sink], tuple(label), f'{{"t": {label}, "value": {value}}}'


def pieces_of(directories: Sequence[Path], flow: Flow, count: int) -> list[Piece]:
    """What is in some output directories, each file in at most so many pieces.

    Raises Unavailable if there is none, StateMismatch for files that are not outputs of the flow.
    """
    found: list[Piece] = []
    for directory in directories:
        if not directory.is_dir():
            raise Unavailable(f"{directory} is no directory of outputs")
        here: list[Piece] = [*_json_lines(directory, flow, count)]
        here += [LmdbPiece(str(path)) for path in sorted(directory.glob("barrier-*"))]
        here += [ParquetPiece(str(path)) for path in sorted(directory.rglob("*.parquet"))]
        ours = directory / ".driftline"
        if not here and not ours.is_dir():
            raise Unavailable(f"{directory} holds no outputs: JSON lines, LMDB or Parquet")
        found += here
    return found


def _json_lines(directory: Path, flow: Flow, count: int) -> Iterator[Piece]:
    sinks = {file_name(sink.name): number for number, sink in enumerate(flow.sinks)}
    for path in sorted(directory.glob("*.jsonl")):
        sink = sinks.get(path.stem)
        if sink is None:
            name = _NUMBERED.fullmatch(path.name)
            sink = sinks.get(name["sink"]) if name else None
        if sink is None:
            raise StateMismatch(
                f"{path} belongs to none of the sinks of flow {flow.name!r} "
                f"({', '.join(sinks)}): is it the output of another flow?"
            )
        for part in line_splits(path, count):
            yield LinesPiece(str(path), sink, part)
    for path in sorted((directory / DEAD_LETTERS).glob("*.jsonl")):
        if not path.name.startswith("input-"):  # records that could not be read are no outputs
            for part in line_splits(path, count):
                yield LinesPiece(str(path), FAILURES, part)


def _label(text: str) -> Label | None:
    found = _LABELLED.match(text)
    try:
        if found is not None:
            return tuple(map(int, found[1].split(",")))
        label = json.loads(text)["t"]
    except (ValueError, TypeError, KeyError):
        return None
    is_label = isinstance(label, list) and len(label) > 1 and set(map(type, label)) == {int}
    return tuple(label) if is_label else None


def same_line(expected: str, found: str) -> bool:
    """Whether two lines say the same, however they are written."""
    if expected == found:
        return True
    try:
        one, other = json.loads(expected), json.loads(found)
    except ValueError:
        return False
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
