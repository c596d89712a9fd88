"""Snapshot store of a node: parts of snapshots in a key-value store, checked when read.

A part has the number of its snapshot. Keys are ``(part, key group)``, values are segments. The key
with key group META holds the header of a part: the node's metadata, the checksums of the segments,
and the number of the previous part. The key NEWEST holds the number of the newest part. So both
damage and loss are detected. (The key VACATED is for nodes that join in a rescaling.) A part is
written atomically, and only merging replaces it. If the newest part belongs to an uncommitted
snapshot, a recovery deletes this part (`LoadSnapshot`).

If a read fails for a temporary reason, it raises Unavailable, and the caller retries.

Once there are many parts, small parts are merged with each other, as in a log-structured merge
tree: a row is copied O(log n) times. A merge that includes the oldest part drops overwritten rows.
It includes that part once the later ones together have at least half of its size.

`LmdbStore` stores the parts in LMDB, each in one durable transaction. `read_store` reads such a
store without changing it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol
from zlib import crc32

import lmdb
from msgspec import Struct

from driftline.engine.durable import make_directory
from driftline.engine.errors import MalformedMessage, SnapshotDamaged, StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.snapshots.jobs import (
    ALL_GROUPS,
    ListParts,
    Loaded,
    LoadSnapshot,
    MergeParts,
    ReadSlice,
    StoreSnapshot,
    Vacate,
)
from driftline.engine.snapshots.merging import MERGE_STEP_ROWS, by_group, merge
from driftline.engine.storage.lmdbs import iterate_rows, open_environment, translate_lmdb_errors
from driftline.engine.storage.ownership import (
    NO_OWNER,
    OWNER_FILE,
    DirectoryOwner,
    read_owner,
    renew_owner,
)
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.role import IOJob

META = 0xFFFF
"""Key group number in the key of a part's header (`_PartHeader`)."""
_KEY = struct.Struct(">QH")
NEWEST = _KEY.pack(0, META)
"""Key of the number of the newest part; parts have numbers from 1."""
VACATED = _KEY.pack(0, 0)
"""Key of the epoch of the newest master for which a `Vacate` emptied the store."""

_FORMAT = 5
MAP_SIZE = 1 << 36
"""Initial size of LMDB's memory map, in bytes. The file grows on demand; `LmdbStore` doubles a full
map."""

MERGE_AT = 32
"""Minimum number of parts for a merge."""


class KeyValue(Protocol):
    """Key-value store that a `PartStore` uses; `name`: its name in errors."""

    name: str

    def read(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None. Raises Unavailable, SnapshotDamaged."""

    def read_slice(self, key: bytes, offset: int, size: int) -> bytes:
        """Return at most `size` bytes of a value from `offset` on; b"" if the key has no value.

        Raises Unavailable, SnapshotDamaged.
        """

    def all_keys(self) -> list[bytes]:
        """Return all keys, sorted. Raises Unavailable, SnapshotDamaged."""

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """Delete keys, then put values, all in one atomic, durable step. Raises Unavailable."""


class PartStore:
    """Store of the parts of a node's snapshots; runs the snapshot jobs.

    `merge_at`: minimum number of parts for a merge. `rows_at_once`: approximate number of rows per
    step of a merge.
    """

    def __init__(
        self,
        kv: KeyValue,
        flow: Flow,
        merge_at: int = MERGE_AT,
        rows_at_once: int = MERGE_STEP_ROWS,
    ) -> None:
        self._kv = kv
        self._flow = flow
        self._merge_at = max(2, merge_at)
        self._rows_at_once = rows_at_once
        self._sizes = self._survey()
        """Part number -> size in bytes; in the order of numbers."""
        self._merge_steps: Iterator[None] | None = None
        """The remaining steps of the merge in progress; None if no merge is in progress."""

    def execute_job(self, job: IOJob) -> object:
        """Run a job, and make its changes durable. Return its result.

        Raises SnapshotDamaged, Unavailable.
        """
        if isinstance(job, LoadSnapshot):
            if job.allow_later:
                return self._load(self._newest_at_least(job.number))
            return self._load(job.number, job.snapshot_incarnation)
        if isinstance(job, StoreSnapshot):
            previous = max((n for n in self._sizes if n < job.number), default=0)
            part = as_part(job.number, job.segments, job.meta, previous, job.snapshot_incarnation)
            self._write(job.number, {**part, NEWEST: _encode_number(job.number)}, ())
        elif isinstance(job, MergeParts):
            return self._continue_merge(job)
        elif isinstance(job, ListParts):
            return self._list(job)
        elif isinstance(job, ReadSlice):
            return self._slice(job)
        elif isinstance(job, Vacate):
            return self._vacate(job.epoch)
        else:
            raise TypeError(f"not a job for a snapshot store: {job!r}")
        return None

    def _write(self, number: int, part: Mapping[bytes, bytes], obsolete: Sequence[int]) -> None:
        """Write a part, and delete the `obsolete` parts, in one atomic step.

        `obsolete` may contain `number`: the new part then replaces the old one.
        """
        keys = [key for n in obsolete for key in self._keys_of(n) if key not in part]
        self._kv.write(part, keys)
        for n in obsolete:
            del self._sizes[n]
        self._sizes[number] = sum(len(value) for key, value in part.items() if key != NEWEST)
        self._sizes = dict(sorted(self._sizes.items()))

    def _keys_of(self, part: int) -> list[bytes]:
        checksums = self._header(part).checksums
        return [_KEY.pack(part, group) for group in (*checksums, META)]

    def read_snapshot(self, number: int) -> Loaded:
        """Read snapshot `number`; change nothing. Raises SnapshotDamaged, Unavailable."""
        parts = [part for part in self._sizes if part <= number]
        if not parts or parts[-1] != number:
            raise SnapshotDamaged(f"{self._kv.name}: snapshot {number} is missing")
        header, segments = self._read(parts, 0)
        return Loaded(header.meta, [segment for _, segment in segments], number)

    def _survey(self) -> dict[int, int]:
        """Return part number -> size in bytes, as stored."""
        sizes: dict[int, int] = {}
        for key in self._keys():
            if part := part_of(key):
                sizes[part] = sizes.get(part, 0) + len(self._kv.read(key) or b"")
        return sizes

    def _keys(self) -> list[bytes]:
        keys = self._kv.all_keys()
        if any(len(key) != _KEY.size for key in keys):
            raise SnapshotDamaged(
                f"{self._kv.name} is damaged: it contains keys that Driftline did not write"
            )
        return keys

    def newest(self) -> int:
        """Return the number of the newest part, or 0.

        Raises SnapshotDamaged if NEWEST is unreadable, or names another part than the newest one
        present. A part and NEWEST are written in one atomic step, so a missing part was lost later.
        Raises Unavailable.
        """
        row = self._kv.read(NEWEST) or _encode_number(0)
        if len(row) != len(_encode_number(0)) or row != _encode_number(_decode_number(row)):
            raise SnapshotDamaged(
                f"{self._kv.name} is damaged: the number of its newest part is unreadable"
            )
        newest, present = _decode_number(row), max(self._sizes, default=0)
        if newest != present:
            raise SnapshotDamaged(
                f"{self._kv.name} is damaged: its newest part should be {newest}, but is {present}"
            )
        return newest

    def _newest_at_least(self, least: int) -> int:
        """Return the number of the newest part. Raises SnapshotDamaged if it is below `least`."""
        self._sizes = self._survey()
        if (newest := self.newest()) < least:
            raise SnapshotDamaged(
                f"{self._kv.name} is an old copy: its newest part is {newest}, but part {least} "
                "had been written"
            )
        return newest

    def _load(self, number: int, incarnation: int | None = None) -> Loaded:
        """Load a snapshot (0: none), and delete later parts.

        `incarnation`: the incarnation that must have taken the snapshot; None: any. Raises
        SnapshotDamaged, Unavailable.
        """
        self._merge_steps = None
        if (
            incarnation is not None
            and number in self._sizes
            and self._header(number).snapshot_incarnation != incarnation
        ):
            raise SnapshotDamaged(
                f"{self._kv.name} is an old copy: its snapshot {number} was later abandoned, and "
                "another one has its number"
            )
        loaded = self.read_snapshot(number) if number else Loaded(b"", [])
        obsolete = [key for key in self._keys() if part_of(key) > number or not number]
        obsolete = [key for key in obsolete if key != VACATED]
        if obsolete:  # after loading: a store that cannot be loaded is left unchanged
            self._kv.write({NEWEST: _encode_number(number)} if number else {}, obsolete)
            self._sizes = {n: size for n, size in self._sizes.items() if n <= number}
        return loaded

    # Jobs that another node requests.

    def _list(self, job: ListParts) -> tuple[tuple[int, int, int], ...]:
        for number, incarnation in (
            (job.base, job.base_incarnation),
            (job.number, job.snapshot_incarnation),
        ):
            if number and (
                number not in self._sizes
                or self._header(number).snapshot_incarnation != incarnation
            ):
                raise SnapshotDamaged(f"{self._kv.name}: snapshot {number} is not there")
        segments = []
        first, last = job.groups
        for part in self._sizes:
            if job.base < part <= job.number:
                for group, checksum in self._header(part).checksums.items():
                    if first <= group <= last or group == ALL_GROUPS:
                        segments.append((part, group, checksum))
        return tuple(segments)

    def _slice(self, job: ReadSlice) -> bytes:
        return self._kv.read_slice(_KEY.pack(job.part, job.group), job.offset, job.size)

    def _vacate(self, epoch: int) -> bool:
        self._merge_steps = None
        row = self._kv.read(VACATED) or _encode_number(0)
        if row != _encode_number(_decode_number(row)):
            raise SnapshotDamaged(f"{self._kv.name} is damaged: the epoch in it is unreadable")
        if _decode_number(row) > epoch:
            return False
        self._kv.write({VACATED: _encode_number(epoch), NEWEST: _encode_number(0)}, self._keys())
        self._sizes = {}
        return True

    def _read(
        self, parts: Sequence[int], before: int
    ) -> tuple[_PartHeader, list[tuple[int, bytes]]]:
        """Return the header of the last of these parts, and all (key group, segment), in order.

        `before`: the part that must precede the first one, or 0. Raises SnapshotDamaged if a
        checksum is wrong, or if a part does not name its predecessor. Raises Unavailable.
        """
        header = _PartHeader(0, 0, b"", {})
        segments: list[tuple[int, bytes]] = []
        for preceding, part in zip([before, *parts], parts, strict=False):
            header = self._header(part)
            if header.before != preceding:
                raise SnapshotDamaged(f"{self._kv.name}: the part before {part} is missing")
            for group, checksum in header.checksums.items():
                segment = self._kv.read(_KEY.pack(part, group)) or b""
                if crc32(segment) != checksum:
                    raise SnapshotDamaged(
                        f"{self._kv.name}: key group {group} of snapshot {part} is damaged"
                    )
                segments.append((group, segment))
        return header, segments

    def _header(self, part: int) -> _PartHeader:
        data = self._kv.read(_KEY.pack(part, META)) or b""
        if len(data) < 4 or crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise SnapshotDamaged(f"{self._kv.name}: snapshot {part} is damaged")
        try:
            return _PartHeader(*unpack(data[4:]))  # type: ignore[misc]  # covered by the checksum
        except (MalformedMessage, TypeError) as error:
            raise SnapshotDamaged(f"{self._kv.name}: snapshot {part}: {error}") from None

    def _continue_merge(self, job: MergeParts) -> bool:
        """Begin a merge, or do its next step; with `merge_all`, do all steps.

        Return whether steps are left.
        """
        if self._merge_steps is None:
            self._merge_steps = self._merge_in_steps(job.previous)
        for _ in self._merge_steps:
            if not job.merge_all:
                return True
        self._merge_steps = None
        return False

    def _merge_in_steps(self, last: int) -> Iterator[None]:
        """Merge parts with numbers up to `last`, in steps, if at least `merge_at` of them exist.

        Merge the newest two, and earlier ones while each has at most twice the total size of those
        after it. The merged part gets the number of the newest, whose snapshot stays loadable.
        """
        old = [part for part in self._sizes if part <= last]
        if len(old) < self._merge_at:
            return
        first = len(old) - 2
        size = sum(self._sizes[part] for part in old[first:])
        while first and self._sizes[old[first - 1]] <= 2 * size:
            first -= 1
            size += self._sizes[old[first]]
        chosen, before = old[first:], old[first - 1] if first else 0
        try:
            header, segments = self._read(chosen, before)
        except SnapshotDamaged:
            return  # loading the snapshot will report the damage
        segments_by_group: dict[int, list[bytes]] = {}
        for group, segment in segments:
            if group != ALL_GROUPS:
                segments_by_group.setdefault(group, []).append(segment)
                continue
            for chunk_group, chunk in by_group(self._flow.groups, segment, self._rows_at_once):
                if chunk:
                    segments_by_group.setdefault(chunk_group, []).append(chunk)
                yield
        # A row that removes a slot must stay while an older part may contain the slot. So if older
        # parts are left out, the segments are only concatenated.
        merged: dict[int, bytes] = {}
        for group, unmerged in segments_by_group.items():
            chunks = []
            for chunk in unmerged if before else merge(self._flow, unmerged, self._rows_at_once):
                chunks.append(chunk)
                yield
            merged[group] = b"".join(chunks)
        self._write(
            chosen[-1],
            as_part(chosen[-1], merged, header.meta, before, header.snapshot_incarnation),
            chosen,
        )


class _PartHeader(NamedTuple):
    """Value of a part's key with key group META.

    `before`: number of the previous part, or 0. `snapshot_incarnation`: the incarnation that
    took the snapshot. `meta`: the node's metadata (`StoreSnapshot.meta`). `checksums`: key group ->
    checksum of its segment.
    """

    before: int
    snapshot_incarnation: int
    meta: bytes
    checksums: dict[int, int]


def as_part(
    number: int, segments: dict[int, bytes], meta: bytes, before: int, incarnation: int
) -> dict[bytes, bytes]:
    """Return the keys and values of part `number`. `before`, `incarnation`: see `_PartHeader`."""
    checksums = {group: crc32(segment) for group, segment in segments.items()}
    header = pack((before, incarnation, meta, checksums))
    part = {_KEY.pack(number, group): segment for group, segment in segments.items()}
    part[_KEY.pack(number, META)] = crc32(header).to_bytes(4, "big") + header
    return part


def part_of(key: bytes) -> int:
    """Return the number of the part that a key belongs to; 0 for NEWEST and VACATED."""
    number: int = _KEY.unpack(key)[0]
    return number


def _encode_number(number: int) -> bytes:
    data = number.to_bytes(8, "big")
    return crc32(data).to_bytes(4, "big") + data


def _decode_number(row: bytes) -> int:
    return int.from_bytes(row[4:], "big")


def check_parts(kv: KeyValue) -> int:
    """Read and check all parts; change nothing. Return the number of the newest part, or 0.

    Raises SnapshotDamaged, Unavailable.
    """
    store = PartStore(kv, Flow("unused, as no parts are merged"))
    if newest := store.newest():
        store.read_snapshot(newest)
    return newest


class LmdbStore:
    """Key-value store in one LMDB directory, which belongs to the runs of one identity.

    Opening a directory of another identity or another owner raises StateMismatch.
    """

    def __init__(
        self, path: Path, identity: str, owner: DirectoryOwner = NO_OWNER, map_size: int = MAP_SIZE
    ) -> None:
        self.name = f"state directory {path}"
        with translate_lmdb_errors(self.name, SnapshotDamaged):
            make_directory(path)
            renew_owner(path / OWNER_FILE, owner, self.name)
            self._env = open_environment(path, map_size, max_dbs=2)
            try:
                self._open_parts(identity)
            except BaseException:
                self._env.close()
                raise

    def read(self, key: bytes) -> bytes | None:
        with (
            translate_lmdb_errors(self.name, SnapshotDamaged),
            self._env.begin(db=self._parts) as txn,
        ):
            value = txn.get(key)
            return None if value is None else bytes(value)

    def read_slice(self, key: bytes, offset: int, size: int) -> bytes:
        with (
            translate_lmdb_errors(self.name, SnapshotDamaged),
            self._env.begin(db=self._parts, buffers=True) as txn,
        ):
            value = txn.get(key)
            return b"" if value is None else bytes(value[offset : offset + size])

    def all_keys(self) -> list[bytes]:
        with (
            translate_lmdb_errors(self.name, SnapshotDamaged),
            self._env.begin(db=self._parts) as txn,
            txn.cursor() as cursor,
        ):
            return [bytes(key) for key in cursor.iternext(values=False)]

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        deletes = list(deletes)
        with translate_lmdb_errors(self.name, SnapshotDamaged):
            while not self._write(puts, deletes):
                self._env.set_mapsize(2 * self._env.info()["map_size"])

    def _write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> bool:
        """Make all changes; or make none and return False, if the memory map is too small."""
        try:
            with self._env.begin(write=True, db=self._parts) as txn:
                for key in deletes:
                    txn.delete(key)
                for key, value in puts.items():
                    txn.put(key, value)
        except lmdb.MapFullError:
            return False
        return True

    def close(self) -> None:
        """Release the directory."""
        self._env.close()

    def _open_parts(self, identity: str) -> None:
        """Open the database of parts. Check the identity, or write it into a new directory."""
        expected = pack((_FORMAT, identity))
        with self._env.begin(write=True) as txn:
            self._parts = self._env.open_db(b"parts", txn=txn)
            about = self._env.open_db(b"about", txn=txn)
            stored = txn.get(b"identity", db=about)
            if stored is None:
                txn.put(b"identity", expected, db=about)
            elif bytes(stored) != expected:
                raise StateMismatch(
                    f"{self.name} holds the state of another flow, input or version of Driftline: "
                    "give another --state directory, or remove this one"
                )


class ReadOnlyStore(Struct):
    """Copy of a key-value store in memory; read-only."""

    name: str
    rows: dict[bytes, bytes]
    owner: DirectoryOwner | None = None
    """None if the directory has no owner."""

    def read(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def read_slice(self, key: bytes, offset: int, size: int) -> bytes:
        return self.rows.get(key, b"")[offset : offset + size]

    def all_keys(self) -> list[bytes]:
        return sorted(self.rows)

    def write(self, puts: object, deletes: object) -> None:
        raise AssertionError("write to a read-only store")


def read_store(path: Path) -> ReadOnlyStore:
    """Read the store in a directory into memory.

    Raises SnapshotDamaged, Unavailable, and StateMismatch if its owner is damaged.
    """
    name = f"state directory {path}"
    with translate_lmdb_errors(name, SnapshotDamaged):
        rows = {key: value for _, key, value in iterate_rows(path, b"parts")}
        return ReadOnlyStore(name, rows, read_owner(path / OWNER_FILE, name))
