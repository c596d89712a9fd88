"""The commit record of a barrier: a consumer stores it together with the items of a bundle.

The record contains the last bundle, so that an error after a replay can name the first output that
differs. If the bundle is larger than `BLOB_BYTES_MAX`, the record contains its t_last and checksum,
but not its blobs. The checksum still shows *that* an output differs.

The record also contains checksums over everything committed so far. With these, a run detects at
its start, and `driftline verify` at any time, outputs that were changed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from msgspec import Struct

from driftline.connectors.sinks.consumer import NO_BUNDLE, LastStored
from driftline.engine.errors import StateMismatch
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.messages import Bundle

BLOB_BYTES_MAX = 1 << 26
"""Maximum total size of the blobs in a commit record."""

_FORMAT = 4


class CommitRecord(Struct, frozen=True):
    """The last bundle, the (first, last) key groups of its barrier, and totals of all commits."""

    groups: tuple[int, int] = (0, 0)
    last: LastStored = NO_BUNDLE
    files: tuple[tuple[str, int, int], ...] = ()
    """(name, bytes committed, checksum) of each file, for a consumer that writes files."""
    outputs: int = 0
    """Number of outputs, without dead letters."""
    failures: int = 0
    """Number of dead letters."""
    checksum: int = 0
    """Sum of the checksums of all rows, for a consumer that writes rows."""
    savepoint: str = ""
    """The savepoint from which a run continues these outputs; set only in the record that
    `driftline spark run` writes."""

    def with_bundle(
        self,
        bundle: Bundle,
        items: Sequence[Item],
        files: tuple[tuple[str, int, int], ...] = (),
        checksum: int = 0,
    ) -> CommitRecord:
        """Return the record that replaces this one once a bundle is stored.

        `items`: all items of the bundle, decoded; `files`, `checksum`: the values of
        these fields once the bundle is stored.
        """
        size = sum(map(len, bundle.blobs))
        blobs = bundle.blobs if size <= BLOB_BYTES_MAX else ()
        last = LastStored(bundle.t_last, bundle.checksum, blobs)
        failure_count = sum(item.sink == FAILURES for item in items)
        outputs = self.outputs + len(items) - failure_count
        failures = self.failures + failure_count
        return CommitRecord(bundle.groups, last, files, outputs, failures, checksum)

    def last_for_groups(self, groups: tuple[int, int], location: str) -> LastStored:
        """Return the last bundle, for a barrier with these key groups; `location`: for errors.

        Raises StateMismatch if the record belongs to other key groups: with its t_last the barrier
        would skip or repeat outputs.
        """
        if self.last != NO_BUNDLE and groups != self.groups:
            raise StateMismatch(
                f"{location} holds the outputs of key groups {self.groups[0]} to {self.groups[1]}, "
                f"not {groups[0]} to {groups[1]}: it was written with another number of nodes. "
                "Run with that number, or give another --output"
            )
        return self.last

    def encode(self) -> bytes:
        """Return the bytes of the record, with a checksum."""
        data = pack(
            (
                _FORMAT,
                self.groups,
                self.last.t_last,
                self.last.checksum,
                self.last.blobs,
                self.files,
                self.outputs,
                self.failures,
                self.checksum,
                self.savepoint,
            )
        )
        return crc32(data).to_bytes(4, "big") + data

    @staticmethod
    def decode(data: bytes, location: str) -> CommitRecord:
        """Decode the result of `encode`. Raises StateMismatch for anything else.

        `location`: the location of the record, for errors.
        """
        if len(data) < 5 or crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise StateMismatch(
                f"{location} is damaged, so it is not known which outputs were delivered. Restore "
                "the output directory from a copy, or start over: --fresh removes the state and "
                "the outputs"
            )
        parts = unpack(data[4:])
        if not isinstance(parts, tuple) or parts[:1] != (_FORMAT,):
            raise StateMismatch(
                f"{location} was written by another version of Driftline: "
                "use that version, or give another --output"
            )
        _, groups, t_last, checksum, blobs, *other_fields = parts
        return CommitRecord(groups, LastStored(t_last, checksum, blobs), *other_fields)
