"""The check of an LMDB file's pages: a sound file passes it, a damaged list of free pages never."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.lmdb_pages import check_pages
from driftline.engine.snapshots.store import LmdbStore

PAGE = 4096


@pytest.mark.parametrize("seed", range(5))
def test_a_sound_file_passes_whatever_was_written_and_removed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    written: list[tuple[int, bytes]] = []
    with lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=3, sync=False) as env:
        databases = [None, env.open_db(b"one"), env.open_db(b"two")]
        check_pages(tmp_path / "data.mdb", PAGE)
        for round_ in range(300):
            with env.begin(write=True) as txn:
                for _ in range(chance.randrange(30)):
                    key, size = chance.randbytes(chance.choice((8, 200))), chance.randrange(9000)
                    number = chance.randrange(3)
                    txn.put(key, chance.randbytes(size), db=databases[number])
                    written.append((number, key))
                while len(written) > (600 if round_ < 200 else 5):
                    number, key = written.pop(chance.randrange(len(written)))
                    txn.delete(key, db=databases[number])
            pages = (env.info()["last_pgno"] + 1) * PAGE
            with (tmp_path / "data.mdb").open("r+b") as file:
                file.truncate(max(pages, file.seek(0, 2)))
            check_pages(tmp_path / "data.mdb", PAGE)


def test_no_damage_of_the_list_of_free_pages_passes(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 28, sync=False) as env:
        for i in range(4):
            with env.begin(write=True) as txn:
                for key in range(100):
                    txn.put(b"%d" % key, b"%d" % i * 900)
    file = tmp_path / "data.mdb"
    sound = file.read_bytes()
    check_pages(file, PAGE)
    ids = list(free_pages(sound))
    assert len(ids) > 50
    for at in ids:
        for bit in range(64):
            damaged = bytearray(sound)
            damaged[at + bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            with pytest.raises(lmdb.CorruptedError, match=r"page \d+ is|impossible"):
                check_pages(file, PAGE)


def test_a_store_with_such_a_list_is_refused_by_name(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, "flow")
    for i in range(4):
        store.write({b"%d" % key: b"%d" % i * 900 for key in range(100)}, [])
    store.close()
    file = tmp_path / "data.mdb"
    damaged = bytearray(file.read_bytes())
    damaged[next(free_pages(damaged))] ^= 4
    file.write_bytes(damaged)
    with pytest.raises(SnapshotDamaged, match=f"{tmp_path} is damaged: .*page"):
        LmdbStore(tmp_path, "flow")


def free_pages(data: bytes | bytearray) -> Iterator[int]:
    """Where in the file the numbers of free pages are. Precondition: their tree is one page."""
    newer = max((0, PAGE), key=lambda root: struct.unpack_from("<Q", data, root + 144))
    leaf = PAGE * struct.unpack_from("<Q", data, newer + 80)[0]
    end = struct.unpack_from("<H", data, leaf + 12)[0]
    for (node,) in struct.iter_unpack("<H", data[leaf + 16 : leaf + end]):
        key_size = struct.unpack_from("<H", data, leaf + node + 6)[0]
        count_at = leaf + node + 8 + key_size
        (count,) = struct.unpack_from("<Q", data, count_at)
        yield from range(count_at + 8, count_at + 8 + 8 * count, 8)
