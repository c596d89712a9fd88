"""The files of the journal, as they are read: by who writes to them, and by who only looks at them.

Nothing is changed here. `serve.journal.segments` says what the files are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from driftline.engine.errors import StateMismatch
from driftline.engine.texts import counted
from driftline.serve.journal.entries import Entry, Header
from driftline.serve.journal.frames import HEAD_BYTES, payload_at, was_durable

ADVICE = "Restore it together with the rest of the state directory of its service, from one copy"

_NAME = re.compile(r"segment-[0-9]{8}")
_BUFFER = 1 << 20


class JournalDamaged(StateMismatch):
    """What was written is not there as it was; `problem`: that, without what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}. {ADVICE}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Contents:
    """What was read of a journal."""

    t_last: int = -1
    """Up to when there are outputs; -1: there are none."""
    segments: int = 0
    entries: int = 0
    torn: str = ""
    """A sentence on a torn end, which is cut off when the journal is opened; "" without one."""


def look_at(directory: Path, *, whole: bool = False) -> Contents:
    """What is in a journal.

    Reads the last segment, as who opens the journal does; `whole`: all of them, and whether each
    goes on where the one before has ended. Raises StateMismatch for damage, OSError.
    """
    numbers = numbers_in(directory)
    read = numbers if whole else numbers[-1:]
    entries, torn = 0, 0
    last: dict[str, Entry] = {}
    for number in read:
        path, offset = path_of(directory, number), 0
        for payload in frames_of(path, number):
            if offset:
                entry = Entry.decode(payload)
                last[entry.barrier] = entry.bare()
                entries += 1
            else:
                header = header_of(payload, path)
                if number != read[0] and [last[name] for name in sorted(last)] != [*header.last]:
                    raise lacking(directory, header.time)
                last = {entry.barrier: entry for entry in header.last}
            offset += HEAD_BYTES + len(payload)
        torn = path.stat().st_size - offset
        if not offset or (torn and number != numbers[-1]):
            raise damaged_at(path, offset)
    t_last = max((entry.t_last for entry in last.values()), default=-1)
    if not torn:
        return Contents(t_last, len(read), entries)
    size, path = counted(torn, "byte"), path_of(directory, numbers[-1])
    told = f"{path} ends with {size} that are no whole record; they are cut off"
    return Contents(t_last, len(read), entries, told)


def begins_at(directory: Path) -> int:
    """The label time from which on a journal has outputs; 0: from the beginning. Precondition:
    `look_at` has raised nothing. Raises OSError."""
    numbers = numbers_in(directory)
    if not numbers:
        return 0
    path = path_of(directory, numbers[0])
    return header_of(next(frames_of(path, numbers[0])), path).time


def path_of(directory: Path, number: int) -> Path:
    """The file of a segment."""
    return directory / f"segment-{number:08}"


def numbers_in(directory: Path) -> list[int]:
    """The numbers of all segments, in order. Raises StateMismatch if one is missing, OSError."""
    names = [path.name for path in directory.iterdir()]
    numbers = sorted(int(name[8:]) for name in names if _NAME.fullmatch(name))
    for number, after in pairwise(numbers):
        if after != number + 1:
            raise JournalDamaged(f"{path_of(directory, number + 1)} is missing")
    return numbers


def frames_of(path: Path, number: int) -> Iterator[bytes]:
    """The payloads of all whole frames of a segment. Raises StateMismatch for damage, OSError."""
    end, offset = path.stat().st_size, 0
    with path.open("rb", buffering=_BUFFER) as file:
        while (payload := payload_at(file, number, offset, end)) is not None:
            yield payload
            offset += HEAD_BYTES + len(payload)
        file.seek(offset)
        if was_durable(file.read(), number, offset):
            raise damaged_at(path, offset)


def header_of(payload: bytes, path: Path) -> Header:
    """The header of a segment. Raises StateMismatch if it is of another format."""
    header = Header.decode(payload)
    if header is None:
        raise StateMismatch(
            f"{path} was written by another version of Driftline: go on with that one, or give "
            "another directory"
        )
    return header


def damaged_at(path: Path, offset: int) -> JournalDamaged:
    """What is said of a file that is damaged."""
    return JournalDamaged(f"{path} is damaged at byte {offset}")


def lacking(directory: Path, time: int) -> JournalDamaged:
    """What is said where a segment does not go on where the one before has ended."""
    return JournalDamaged(
        f"{directory} lacks outputs from before time {time}: the end of a segment is missing"
    )
