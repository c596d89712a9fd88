"""Used files: each has a checksum of the records that a run has used from an input.

A record is used once a committed snapshot or a delivered output depends on it; it must not change
afterwards. The state directory has a file such as `input-0.used` for each input that may grow. A
write replaces the file atomically. If it is missing, or older than the last snapshot, the next
start compares fewer records. It has an owner, like all parts of a state directory.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from msgspec import Struct
from msgspec.structs import astuple

from driftline.connectors.files import FileSource
from driftline.connectors.files.files import SeveralFiles
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.engine.durable import replace_file
from driftline.engine.errors import MalformedMessage, StateMismatch, Unavailable
from driftline.engine.sources import Source
from driftline.engine.sources.fingerprint import (
    EMPTY_FINGERPRINT,
    InputFingerprint,
    StoreFingerprint,
    VerifiedSource,
)
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.role import IOJob

_FORMAT = 4

MAY_GROW = FileSource, SeveralFiles
"""Sources that have a used file."""


class UsedFileContents(Struct, frozen=True):
    """The contents of a used file."""

    owner: DirectoryOwner
    fingerprint: InputFingerprint


class UsedFile:
    """The used file of one input.

    Opening it raises StateMismatch if it is damaged or belongs to another run, Unavailable.
    """

    def __init__(self, path: Path, owner: DirectoryOwner) -> None:
        self._path = path
        self._owner = owner
        previous = read_used(path)
        if previous is not None:
            owner.supersede(previous.owner, str(path))
        self.fingerprint = EMPTY_FINGERPRINT if previous is None else previous.fingerprint
        """The fingerprint in the file; empty if there is no file."""

    def execute_job(self, job: IOJob) -> None:
        """Store the fingerprint, unless the file covers its records already. Raises Unavailable."""
        assert isinstance(job, StoreFingerprint)
        if job.fingerprint.until <= self.fingerprint.until:
            return
        data = pack((_FORMAT, astuple(self._owner), astuple(job.fingerprint)))
        try:
            replace_file(self._path, crc32(data).to_bytes(4, "big") + data)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from None
        self.fingerprint = job.fingerprint


def open_checked(
    source: Source, file: UsedFile, bad_records: BadRecordFile, start: int
) -> VerifiedSource:
    """Compare the used records of a source with its used file, and return the verified source.

    `start`: the time from which the source will be read. Removes bad records that will be read
    again from `bad_records`. Raises StateMismatch if a used record has changed, InputError,
    Unavailable.
    """
    verified = VerifiedSource(source, file.fingerprint)
    try:
        verified.check(start)
    except StateMismatch as error:
        if bad_records.count_below(file.fingerprint.until):
            raise StateMismatch(
                f"{error}. Bad records that were set aside, in {bad_records.path}, count as used, "
                "too: instead of correcting one in place, append it to the end of the input"
            ) from None
        raise
    bad_records.forget(max(start, file.fingerprint.until))
    return verified


def read_used(path: Path) -> UsedFileContents | None:
    """Return the contents of a used file, or None if there is no such file.

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
            raise MalformedMessage("its checksum is wrong")
        match unpack(data[4:]):
            case (
                version,
                (str(lineage), str(role), int(session)),
                (int(until), int(last), int(checksum), line),
            ) if version == _FORMAT:
                owner = DirectoryOwner(lineage, role, session)
                return UsedFileContents(
                    owner, InputFingerprint(until, last, checksum, _decode_line(line))
                )
        raise MalformedMessage("its format has another version")
    except MalformedMessage as error:
        raise StateMismatch(
            f"{path} is damaged: {error}. Restore it from a copy, or remove it: then the run does "
            "not check whether the records of this input have changed"
        ) from None


def _decode_line(fields: object) -> tuple[int, int, bytes] | None:
    match fields:
        case None:
            return None
        case (int(previous), int(offset), bytes(line)):
            return previous, offset, line
    raise MalformedMessage("its copy of an incomplete line is invalid")
