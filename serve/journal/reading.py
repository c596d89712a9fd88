"""Looks at the files of a journal without changing them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from driftline.engine.errors import StateMismatch
from driftline.engine.storage.segment_log import (
    LogDamaged,
    damaged_at,
    frames_of,
    header_of,
    numbers_in,
    path_of,
)
from driftline.engine.texts import counted
from driftline.serve.journal.entries import Entry, Header


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
        path, end = path_of(directory, number), 0
        for frame in frames_of(directory, number):
            end = frame.end
            if frame.is_header:
                header = decoded_header(frame.payload, path)
                if number != read[0] and [last[name] for name in sorted(last)] != [*header.last]:
                    raise lacking(directory, header.time)
                last = {entry.barrier: entry for entry in header.last}
            else:
                entry = Entry.decode(frame.payload)
                last[entry.barrier] = entry.bare()
                entries += 1
        torn = path.stat().st_size - end
        if torn and number != numbers[-1]:
            raise damaged_at(path, end)
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
    return decoded_header(header_of(directory, numbers[0]), path_of(directory, numbers[0])).time


def decoded_header(payload: bytes, path: Path) -> Header:
    """Return the header of a segment. Raises StateMismatch if it is of another format."""
    header = Header.decode(payload)
    if header is None:
        raise StateMismatch(
            f"{path} was written by another version of Driftline: go on with that one, or give "
            "another directory"
        )
    return header


def lacking(directory: Path, time: int) -> LogDamaged:
    """Return the error for a segment that does not go on where the one before has ended."""
    return LogDamaged(
        f"{directory} lacks outputs from before time {time}: the end of a segment is missing"
    )
