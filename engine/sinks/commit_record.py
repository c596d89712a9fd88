"""The progress of a barrier: what a connector stores together with the items of a bundle.

It holds the last bundle, so that after a replay the first output that differs can be named. A
bundle of more than `KEPT_BYTES` is kept without its blobs: its checksum still tells *that*
something differs.

It also holds running checksums over all that was committed, by which `driftline verify` and the
start of a run notice what was changed afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from driftline.engine.errors import StateMismatch
from driftline.engine.sinks.consumer import NO_BUNDLE, Last
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.messages import Bundle

KEPT_BYTES = 1 << 26

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The last bundle, the key groups that it speaks for, and what was committed up to it."""

    groups: tuple[int, int] = (0, 0)
    last: Last = NO_BUNDLE
    files: tuple[tuple[str, int, int], ...] = ()
    """(name, bytes, checksum) for a connector that writes files."""
    rows: tuple[int, int] = (0, 0)
    """How many, and the sum of their checksums, for one that writes rows."""

    @staticmethod
    def of(
        bundle: Bundle,
        files: tuple[tuple[str, int, int], ...] = (),
        rows: tuple[int, int] = (0, 0),
    ) -> CommitRecord:
        """The progress when a bundle is stored."""
        size = sum(map(len, bundle.blobs))
        blobs = bundle.blobs if size <= KEPT_BYTES else ()
        return CommitRecord(bundle.groups, Last(bundle.t_last, bundle.checksum, blobs), files, rows)

    def of_groups(self, groups: tuple[int, int], where: str) -> Last:
        """The last bundle, for a barrier with these key groups. Raises StateMismatch.

        t_last would be wrong for a barrier of other groups: it would skip or repeat outputs.
        """
        if self.last != NO_BUNDLE and groups != self.groups:
            raise StateMismatch(
                f"{where} holds the outputs of key groups {self.groups[0]} to {self.groups[1]}, "
                f"not {groups[0]} to {groups[1]}: it was written with another number of nodes. "
                "Run with that number, or give another --output"
            )
        return self.last

    def encode(self) -> bytes:
        """As bytes, with a checksum."""
        data = pack(
            (
                _FORMAT,
                self.groups,
                self.last.t_last,
                self.last.checksum,
                self.last.blobs,
                self.files,
                self.rows,
            )
        )
        return crc32(data).to_bytes(4, "big") + data

    @staticmethod
    def decode(data: bytes, where: str) -> CommitRecord:
        """What `encode` made. Raises StateMismatch for anything else."""
        if len(data) < 5 or crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise StateMismatch(
                f"{where} is damaged, so what was delivered is not known any more. Restore the "
                "output directory from a copy, or remove it together with the state directory "
                "and run again from the beginning"
            )
        parts = unpack(data[4:])
        if not isinstance(parts, tuple) or parts[:1] != (_FORMAT,):
            raise StateMismatch(
                f"{where} was written by another version of Driftline: "
                "go on with that one, or give another --output"
            )
        _, groups, t_last, checksum, blobs, files, rows = parts
        return CommitRecord(groups, Last(t_last, checksum, blobs), files, rows)
