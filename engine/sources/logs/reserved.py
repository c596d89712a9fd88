"""The note beside an input log of the times reserved in it: it shows that a log is an old copy.

``input-0.reserved`` is beside ``input-0``, and not in it: who puts back an older copy of the log
alone leaves the note. Each group of records reserves later times, so the note is beyond what an
older copy has. It is written after the log, and not synced: it outlives the process, and after a
power cut it may be missing or say less, but never more than the log.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from driftline.engine.durable import write_at

_NUMBER = struct.Struct(">Q")


class ReservedNote:
    """The note of a log, written by whoever has the log open. Without a lineage there is none."""

    def __init__(self, log: Path, lineage: str) -> None:
        self._file = -1
        self._lineage = lineage
        if lineage:
            with suppress(OSError):  # what it shows, other numbers may show as well
                self._file = os.open(note_of(log), os.O_WRONLY | os.O_CREAT, 0o644)

    def write(self, reserved: int) -> None:
        """Note that all times below `reserved` are given. Precondition: the log has it."""
        if self._file >= 0:
            with suppress(OSError):
                write_at(self._file, _encoded(reserved, self._lineage), 0)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def note_of(log: Path) -> Path:
    """The file of the note of a log."""
    return log.with_name(f"{log.name}.reserved")


def noted(log: Path, lineage: str) -> int:
    """The reserved time that is noted for a log; 0 without a note, or with one of another lineage.

    Raises OSError.
    """
    try:
        data = note_of(log).read_bytes()
    except FileNotFoundError:
        return 0
    if len(data) != 4 + _NUMBER.size:
        return 0
    (reserved,) = _NUMBER.unpack(data[4:])
    return int(reserved) if data == _encoded(reserved, lineage) else 0


def _encoded(reserved: int, lineage: str) -> bytes:
    number = _NUMBER.pack(reserved)
    return crc32(number, crc32(lineage.encode())).to_bytes(4, "big") + number
