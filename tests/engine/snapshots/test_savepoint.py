"""Damaged savepoints: any change raises SnapshotDamaged."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.flow.flow import Flow
from driftline.engine.snapshots.savepoint import open_savepoint, write_manifest
from driftline.engine.state.managed import ValueState

FLOW = Flow("saved")
FLOW.source("in").key_by(0).scan(lambda *_: None, ValueState[object]("value")).sink()


def test_flipped_bit_in_a_manifest_is_reported_as_damage(tmp_path: Path) -> None:
    write_manifest(tmp_path, FLOW, 7)
    manifest = tmp_path / "manifest.json"
    data = manifest.read_bytes()
    chance = Random(1)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        manifest.write_bytes(changed)
        with pytest.raises(SnapshotDamaged, match=str(manifest.parent)):
            open_savepoint(tmp_path)


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{}", b"\xff\xfe", b"[" * 100_000])
def test_invalid_manifest_content_is_reported_as_damage(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(SnapshotDamaged, match=r"manifest\.json is damaged"):
        open_savepoint(tmp_path)
