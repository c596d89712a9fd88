"""A store that fills its address space gets more of it."""

from pathlib import Path

from driftline.engine.snapshots.store import LmdbStore


def test_a_full_map_grows_and_what_is_written_is_all_there(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, "me", map_size=1 << 17)
    values = {bytes([number]): bytes([number]) * 100_000 for number in range(20)}
    for key, value in values.items():
        store.write({key: value}, iter(()))
    store.write({b"last": b"one"}, iter([b"\0", b"\1"]))
    assert store.all_keys() == sorted([*values, b"last"])[2:]
    assert all(store.read(key) == value for key, value in list(values.items())[2:])
    store.close()
    again = LmdbStore(tmp_path, "me", map_size=1 << 17)
    assert again.read(bytes([19])) == values[bytes([19])]
    again.close()
