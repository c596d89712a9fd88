"""Read the outputs that a consumer has stored, in JSON lines or LMDB, as lines with labels.

Tasks read shares of the outputs in parallel. A share keeps the stored order, so an audit detects
outputs out of order. All lines have the form of `connectors.sinks.lines`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from driftline.connectors.files.splits import FileSplit, line_splits
from driftline.connectors.sinks.lines import DEAD_LETTERS, JsonLines
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.operators.steps import FAILURES
from driftline.engine.texts import escape_file_name

Line = tuple[int, Label | None, str]
"""(number of the sink, label, line); label None: the line has no readable label."""

_FILE_NAME = re.compile(r"(?P<sink>.*?)(?:-(?:spark-)?\d+)?\.jsonl")
_LINE_START = re.compile(r'\{"t": \[([0-9, ]+)\], "value": ')


class OutputShare(Protocol):
    """The share of a consumer's outputs that one task reads."""

    @property
    def file(self) -> str:
        """The path of the file or LMDB environment, for messages."""

    def lines(self, flow: Flow) -> Iterator[Line]:
        """Yield the lines in stored order."""


class JsonLinesShare(Struct, frozen=True):
    """A split of a file of JSON lines."""

    file: str
    sink: int
    split: FileSplit

    def lines(self, flow: Flow) -> Iterator[Line]:
        for raw in self.split.lines():
            text = raw.decode("utf-8", "replace")
            yield self.sink, _label(text), text


class LmdbShare(Struct, frozen=True):
    """The LMDB environment of one barrier."""

    file: str

    def lines(self, flow: Flow) -> Iterator[Line]:
        from driftline.connectors.sinks.lmdb import read_environment

        # The audit also expects a dead letter for an output that JSON cannot hold.
        lines = JsonLines(flow, dead_letters=True)
        for item, line in map(lines.encode_item, read_environment(Path(self.file))):
            yield item.sink, item.label, line


def shares_of(directories: Sequence[Path], flow: Flow, count: int) -> list[OutputShare]:
    """Return the shares of the outputs in directories, at most `count` for each file of JSON lines.

    The shares of a file follow each other, in its order. Raises Unavailable for a directory that is
    missing or holds no outputs, StateMismatch for files that are not outputs of the flow.
    """
    shares: list[OutputShare] = []
    for directory in directories:
        if not directory.is_dir():
            raise Unavailable(f"{directory} is not a directory: give the output directory of a run")
        directory_shares: list[OutputShare] = [*_json_lines_shares(directory, flow, count)]
        directory_shares += [LmdbShare(str(path)) for path in sorted(directory.glob("barrier-*"))]
        belongs_to_run = (directory / ".driftline").is_dir()  # a run may have no outputs yet
        if not directory_shares and not belongs_to_run:
            raise Unavailable(f"{directory} holds no outputs: neither JSON lines nor LMDB")
        shares += directory_shares
    return shares


def _json_lines_shares(directory: Path, flow: Flow, count: int) -> Iterator[OutputShare]:
    sinks = {escape_file_name(sink.name): number for number, sink in enumerate(flow.sinks)}
    for path in sorted(directory.glob("*.jsonl")):
        sink = sinks.get(path.stem)
        if sink is None:
            name = _FILE_NAME.fullmatch(path.name)
            sink = sinks.get(name["sink"]) if name else None
        if sink is None:
            raise StateMismatch(
                f"{path} belongs to none of the sinks of flow {flow.name!r} "
                f"({', '.join(sinks)}): is it the output of another flow?"
            )
        for split in line_splits(path, count):
            yield JsonLinesShare(str(path), sink, split)
    for path in sorted((directory / DEAD_LETTERS).glob("*.jsonl")):
        if not path.name.startswith("input-"):  # bad records are not outputs
            for split in line_splits(path, count):
                yield JsonLinesShare(str(path), FAILURES, split)


def _label(text: str) -> Label | None:
    start = _LINE_START.match(text)
    try:
        if start is not None:
            return tuple(map(int, start[1].split(",")))
        label = json.loads(text)["t"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_label = isinstance(label, list) and len(label) > 1 and set(map(type, label)) == {int}
    return tuple(label) if is_label else None


def is_same_line(expected: str, stored: str) -> bool:
    """Return whether two lines are the same JSON value, up to spaces and the order of fields."""
    if expected == stored:
        return True
    try:
        values = json.loads(expected), json.loads(stored)
        expected_text, stored_text = (json.dumps(value, sort_keys=True) for value in values)
        return expected_text == stored_text
    except (ValueError, RecursionError):
        return False
