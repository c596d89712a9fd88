"""Owners of directories: each directory of a run names its run, so another run rejects it.

A run's *lineage* is a random token that is created together with the registry and lives as long as
the run's state, over any number of commands. Each start of a command is a *session*, numbered from
1. In each directory a file (`OWNER_FILE` in stores and logs) names the lineage, the role of the
directory in that run, and the last session that opened the directory.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from msgspec import Struct

from driftline.engine.durable import replace_file
from driftline.engine.errors import MalformedMessage, StateMismatch
from driftline.engine.wire.codec import pack, unpack

_FORMAT = 1


class DirectoryOwner(Struct, frozen=True):
    """The run that a directory belongs to, and its last session.

    An owner without a lineage names no run, and matches every run.
    """

    lineage: str = ""
    role: str = ""
    """The role of the directory, such as ``node-0``, ``input-1`` or ``output-0``."""
    session: int = 0

    def supersede(self, before: DirectoryOwner | None, where: str) -> DirectoryOwner:
        """Return the owner to write into a directory that this owner opens.

        This is `before` if this owner has no lineage, otherwise this owner.
        `before`: the owner in the directory; None for a new directory. `where`: the directory's
        name, for errors.
        Raises StateMismatch if the directory has another lineage or role, or a later session.
        """
        if before is None or not before.lineage:
            return self
        if not self.lineage:
            return before
        if (before.lineage, before.role) != (self.lineage, self.role):
            raise StateMismatch(
                f"{where} is {before}, not {self}: it was moved or copied here, or belongs to a run"
                " that was removed. Restore all directories of the run from copies of the same "
                "moment; or, if these files are not needed, remove them. For a flow in "
                "a cluster, these are flows/NAME in the --state directory of its agents, and its "
                "outputs"
            )
        if before.session > self.session:
            raise StateMismatch(
                f"{where} was used in session {before.session} of its run, but this is session "
                f"{self.session}: the registry is an old copy. Restore all directories of the run "
                "from copies of the same moment"
            )
        return self

    def __str__(self) -> str:
        return f"{self.role} of run {self.lineage[:8]}"

    def encode(self) -> bytes:
        """Encode the owner, with a checksum."""
        data = pack((_FORMAT, self.lineage, self.role, self.session))
        return crc32(data).to_bytes(4, "big") + data

    @staticmethod
    def decode(data: bytes, where: str) -> DirectoryOwner:
        """Decode the result of `encode`. Raises StateMismatch for anything else.

        `where`: the directory's name, for errors.
        """
        try:
            if crc32(data[4:]) != int.from_bytes(data[:4], "big"):
                raise MalformedMessage("its checksum is wrong")
            match unpack(data[4:]):
                case (version, str(lineage), str(role), int(session)) if version == _FORMAT:
                    return DirectoryOwner(lineage, role, session)
            raise MalformedMessage("another version of Driftline wrote it")
        except MalformedMessage as error:
            raise StateMismatch(
                f"{where} is damaged: its owner record cannot be read, {error}. "
                "Restore it from a copy"
            ) from None


NO_OWNER = DirectoryOwner()
"""The owner without a lineage."""

OWNER_FILE = "owner"
"""The file of the owner in the directory of a store or a log."""


def read_owner(file: Path, where: str) -> DirectoryOwner | None:
    """Return the owner in a file; None if there is no file.

    `where`: the directory's name, for errors.

    Raises StateMismatch if the file is damaged; OSError.
    """
    return DirectoryOwner.decode(file.read_bytes(), where) if file.exists() else None


def renew_owner(file: Path, owner: DirectoryOwner, where: str) -> None:
    """Check the owner in `file`, and replace it with `owner` (see `DirectoryOwner.supersede`).

    `where`: the directory's name, for errors. Raises StateMismatch if the file names another run or
    role, or a later session; OSError.
    """
    before = read_owner(file, where)
    after = owner.supersede(before, where)
    if after != before and after.lineage:
        replace_file(file, after.encode())
