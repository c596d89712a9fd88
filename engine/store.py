"""The snapshot store of a node: LMDB, one transaction for each part of a snapshot.

Keys are ``(snapshot, key group)``, values are a checksum and a segment; key group META holds the
meta data and the checksums of all segments, so that a missing one is noticed too. Everything of
one snapshot is written in one durable transaction. Nothing is overwritten: a node which is one
snapshot ahead of another that failed goes back by forgetting it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from zlib import crc32

import lmdb

from engine.codec import pack, unpack
from engine.errors import MalformedMessage, SnapshotDamaged, StateMismatch, Unavailable
from engine.party import Job
from engine.snapshots import CommitSnapshot, Loaded, LoadSnapshot, StoreSnapshot

META = 0xFFFF
_KEY = struct.Struct(">QH")
_FORMAT = 1
MAP_SIZE = 1 << 36
"""Bytes of address space; the file grows only as it is filled."""

MERGE_AT = 64
"""Parts that pile up before they are merged into one."""

Merge = Callable[[list[bytes]], bytes]


class SnapshotStore(Protocol):
    """Carries out the snapshot jobs of a node."""

    def carry_out(self, job: Job) -> object:
        """Do a job durably and return its result; raises SnapshotDamaged, Unavailable."""


class LmdbStore:
    """The store of one node in one directory."""

    def __init__(self, path: Path, identity: str, merge: Merge) -> None:
        path.mkdir(parents=True, exist_ok=True)
        try:
            self._env = lmdb.open(str(path), map_size=MAP_SIZE, max_dbs=2)
        except lmdb.Error as error:
            raise Unavailable(f"state directory {path} cannot be opened: {error}") from None
        self._path = path
        self._parts = self._env.open_db(b"parts")
        self._about = self._env.open_db(b"about")
        self._merge = merge
        self._check_identity(identity)

    def carry_out(self, job: Job) -> object:
        """Do a job durably and return its result."""
        try:
            if isinstance(job, LoadSnapshot):
                return self._load(job.number)
            if isinstance(job, StoreSnapshot):
                self._store(job)
            elif isinstance(job, CommitSnapshot):
                self._merge_before(job.number)
            else:
                raise TypeError(f"not a job for a snapshot store: {job!r}")
        except lmdb.Error as error:
            raise Unavailable(f"state directory {self._path}: {error}") from None
        return None

    def close(self) -> None:
        """Release the directory."""
        self._env.close()

    def _check_identity(self, identity: str) -> None:
        mine = pack((_FORMAT, identity))
        with self._env.begin(write=True, db=self._about) as txn:
            found = txn.get(b"identity")
            if found is None:
                txn.put(b"identity", mine)
            elif found != mine:
                raise StateMismatch(
                    f"{self._path} holds the state of another flow, input or version of Driftline: "
                    "give another --state directory, or remove this one"
                )

    def _store(self, job: StoreSnapshot) -> None:
        with self._env.begin(write=True, db=self._parts) as txn:
            self._put(txn, job.number, job.segments, job.meta)

    def _load(self, number: int) -> Loaded:
        with self._env.begin(write=True, db=self._parts) as txn, txn.cursor() as cursor:
            newer = cursor.set_range(_KEY.pack(number + 1, 0))
            while newer:
                newer = cursor.delete()
        if not number:
            return Loaded(b"", [])
        meta, segments = self._read(number)
        return Loaded(meta, [segment for _, segment in segments])

    def _read(self, number: int) -> tuple[bytes, list[tuple[int, bytes]]]:
        """Meta data and (key group, segment) in order, up to a snapshot. Checks everything."""
        segments: list[tuple[int, bytes]] = []
        with self._env.begin(db=self._parts) as txn:
            if txn.get(_KEY.pack(number, META)) is None:
                raise SnapshotDamaged(f"{self._path}: snapshot {number} is not there")
            meta = b""
            for part in self._numbers(txn):
                if part > number:
                    break
                meta, checksums = self._meta(txn, part)
                for group, checksum in checksums.items():
                    segment = bytes(txn.get(_KEY.pack(part, group)) or b"")
                    if crc32(segment) != checksum:
                        raise SnapshotDamaged(
                            f"{self._path}: key group {group} of snapshot {part} is damaged"
                        )
                    segments.append((group, segment))
        return meta, segments

    def _numbers(self, txn: lmdb.Transaction) -> list[int]:
        with txn.cursor() as cursor:
            return sorted({_KEY.unpack(key)[0] for key in cursor.iternext(values=False)})

    def _meta(self, txn: lmdb.Transaction, part: int) -> tuple[bytes, dict[int, int]]:
        try:
            found = unpack(_unsealed(bytes(txn.get(_KEY.pack(part, META)) or b"")))
        except MalformedMessage:
            raise SnapshotDamaged(f"{self._path}: snapshot {part} is damaged") from None
        return found  # type: ignore[return-value]  # what the checksum covers, we have written

    def _merge_before(self, number: int) -> None:
        """Merge the parts before a committed snapshot into one, once there are many of them.

        The last two snapshots stay loadable: a damaged one falls back to the one before.
        """
        with self._env.begin(db=self._parts) as txn:
            old = [part for part in self._numbers(txn) if part < number]
        if len(old) < MERGE_AT:
            return
        last = old[-1]
        try:
            meta, segments = self._read(last)
        except SnapshotDamaged:
            return  # it is told of when it is needed
        groups: dict[int, list[bytes]] = {}
        for group, segment in segments:
            groups.setdefault(group, []).append(segment)
        merged = {group: self._merge(parts) for group, parts in groups.items()}
        with self._env.begin(write=True, db=self._parts) as txn:
            with txn.cursor() as cursor:
                more = cursor.first()
                while more and _KEY.unpack(cursor.key())[0] <= last:
                    more = cursor.delete()
            self._put(txn, last, merged, meta)

    def _put(
        self, txn: lmdb.Transaction, number: int, segments: dict[int, bytes], meta: bytes
    ) -> None:
        for group, segment in segments.items():
            txn.put(_KEY.pack(number, group), segment)
        checksums = {group: crc32(segment) for group, segment in segments.items()}
        txn.put(_KEY.pack(number, META), _sealed(pack((meta, checksums))))


def _sealed(data: bytes) -> bytes:
    return struct.pack(">I", crc32(data)) + data


def _unsealed(data: bytes) -> bytes:
    if len(data) < 4 or struct.unpack(">I", data[:4])[0] != crc32(data[4:]):
        raise MalformedMessage("checksum does not fit")
    return data[4:]
