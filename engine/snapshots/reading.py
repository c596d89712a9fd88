"""Reads the store of a node without a change to it: also its mark stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.storage.lmdbs import every_row, reported
from driftline.engine.storage.manifest import MARK_FILE, Mark, read_mark


@dataclass(slots=True)
class ReadOnlyStore:
    """The rows of a store in memory, as a key-value store that nothing can be written to."""

    name: str
    rows: dict[bytes, bytes]
    mark: Mark | None = None
    """None: it has none."""

    def read(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def read_slice(self, key: bytes, offset: int, size: int) -> bytes:
        return self.rows.get(key, b"")[offset : offset + size]

    def all_keys(self) -> list[bytes]:
        return sorted(self.rows)

    def write(self, puts: object, deletes: object) -> None:
        raise AssertionError("a store that is only looked at was written to")


def read_store(path: Path) -> ReadOnlyStore:
    """The store in a directory. Raises SnapshotDamaged, Unavailable, and StateMismatch if its mark
    is damaged."""
    name = f"state directory {path}"
    with reported(name, SnapshotDamaged):
        rows = {key: value for _, key, value in every_row(path, b"parts")}
        return ReadOnlyStore(name, rows, read_mark(path / MARK_FILE, name))
