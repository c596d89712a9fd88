"""Comparing the outputs of a run with those that it must have: those of the reference interpreter.

Sink by sink, in label order, line by line. The interpreter holds all inputs in memory, so this is
for runs of moderate size; `driftline spark audit` is for any.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from operator import index
from pathlib import Path

from driftline.deploy.host.forks import guard
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.operators.steps import FAILURES
from driftline.engine.reference import interpret
from driftline.engine.sinks.lines import Lines
from driftline.engine.sources import BadRecord, Source, strict
from driftline.engine.texts import beginning, visible

SHOWN = 200
"""Characters of a line that are shown."""


def difference(
    flow: Flow, inputs: Sequence[Source], output: Path, until: int, *, dead_letters: bool
) -> tuple[str, int]:
    """The first difference, for people, "" if there is none; and how many outputs were compared.

    `until`: all outputs with smaller times are delivered, and no others. Dead letters are left out.
    Raises the errors of inputs and functions, StateMismatch for a file that is no output, OSError.
    """
    lines = Lines(flow, dead_letters)
    streams = [list(_records(source, until, dead_letters)) for source in inputs]
    guard()
    count = 0
    with ExitStack() as stack:
        there = {
            sink: _delivered(output, name, stack)
            for sink, name in lines.names.items()
            if sink != FAILURES
        }
        for item, wanted in map(lines.written, interpret(flow, streams, dead_letters=dead_letters)):
            if item.sink == FAILURES:
                continue
            found = next(there[item.sink], "")
            if found != wanted:
                return _told(lines.names[item.sink], found, wanted), count
            count += 1
        for sink, left in there.items():
            if found := next(left, ""):
                return _told(lines.names[sink], found, ""), count
    return "", count


def _records(source: Source, until: int, dead_letters: bool) -> Iterator[tuple[int, object]]:
    records = source.read(1)
    for record in records if dead_letters else strict(records):
        if isinstance(record, BadRecord):
            continue
        if record[0] >= until:
            return
        yield record


def _delivered(output: Path, sink: str, stack: ExitStack) -> Iterator[str]:
    """The lines of all nodes of one sink, in label order."""
    name = re.compile(rf"{re.escape(sink)}-\d+\.jsonl")
    paths = [path for path in sorted(output.iterdir()) if name.fullmatch(path.name)]
    files = [stack.enter_context(path.open(encoding="utf-8")) for path in paths]
    return heapq.merge(*((line.rstrip("\n") for line in file) for file in files), key=_label)


def _label(line: str) -> Label:
    try:
        label: Label = tuple(map(index, json.loads(line)["t"]))
        return label
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StateMismatch(f"{visible(beginning(line, SHOWN))} is no line of an output") from None


def _told(sink: str, found: str, wanted: str) -> str:
    shown = [visible(beginning(line, SHOWN)) if line else "nothing" for line in (found, wanted)]
    return f"sink {sink!r} has {shown[0]}\n  where the reference interpreter gives {shown[1]}"
