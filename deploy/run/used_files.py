"""The files in the state directory that say what a run has used of its inputs: `input-0.used`.

One for each input that may grow, replaced as a whole. A file may be missing, or older than the last
snapshot: then fewer records are compared at the next start. It names its run, like all parts of a
state directory.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from driftline.deploy.run.asides import Asides
from driftline.engine.durable import replace_file
from driftline.engine.errors import MalformedMessage, StateMismatch, Unavailable
from driftline.engine.sources import FileSource, Source
from driftline.engine.sources.files.several import SeveralFiles
from driftline.engine.sources.used import NOTHING, CheckedSource, StoreUsed, Used
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.marks import Mark
from driftline.engine.wire.party import Job

_FORMAT = 1

MAY_GROW = FileSource, SeveralFiles
"""Inputs of which it is noted what was used."""


class UsedFile:
    """The file of one input. Opening it raises StateMismatch if it is another run's or damaged,
    Unavailable."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self._path = path
        self._mark = mark
        before = read_used(path)
        if before is not None:
            mark.over(before[0], str(path))
        self.used = NOTHING if before is None else before[1]
        """What the run has used, as far as it is known."""

    def carry_out(self, job: Job) -> None:
        """Carry out `StoreUsed`, unless more is known to be used. Raises Unavailable."""
        assert isinstance(job, StoreUsed)
        used = job.used
        if used.until <= self.used.until:
            return
        mark = self._mark
        of_run = mark.lineage, mark.role, mark.session
        data = pack((_FORMAT, of_run, (used.until, used.last, used.sum)))
        try:
            replace_file(self._path, crc32(data).to_bytes(4, "big") + data)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from None
        self.used = used


def open_checked(source: Source, file: UsedFile, aside: Asides, start: int) -> CheckedSource:
    """A source that may have changed, once its used records are compared.

    `start`: the time from which on it will be read; what was set aside from there on is forgotten.
    Raises StateMismatch if a used record has changed, InputError, Unavailable.
    """
    checked = CheckedSource(source, file.used)
    try:
        checked.check(start)
    except StateMismatch as error:
        if aside.below(file.used.until):
            raise StateMismatch(
                f"{error}. Records that were set aside, in {aside.path}, count as used, too: "
                "append a mended one to the end of the input"
            ) from None
        raise
    aside.forget(max(start, file.used.until))
    return checked


def read_used(path: Path) -> tuple[Mark, Used] | None:
    """The run of a file, and what it has used; None if there is no such file.

    Raises StateMismatch if it is damaged, Unavailable.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from None
    try:
        if crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise MalformedMessage("its checksum does not fit")
        match unpack(data[4:]):
            case (
                version,
                (str(lineage), str(role), int(session)),
                (int(until), int(last), int(total)),
            ) if version == _FORMAT:
                return Mark(lineage, role, session), Used(until, last, total)
        raise MalformedMessage("it is of another version")
    except MalformedMessage as error:
        raise StateMismatch(
            f"{path} is damaged: {error}. Restore it from a copy, or remove it: then this input is "
            "taken to have the same records as before"
        ) from None
