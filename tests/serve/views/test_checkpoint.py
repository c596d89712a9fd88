"""Checkpoint files: a write leaves the complete old or the complete new one."""

import errno
import logging
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import Unavailable
from driftline.engine.wire.bundles import Item
from driftline.serve.views.checkpoint import restore_view, write_checkpoint
from driftline.serve.views.keyvalue import KeyValueView, KeyVersion
from tests.connectors.sinks.bundles import Disk, PowerLoss


def view_of(value: int) -> KeyValueView:
    view = KeyValueView(0)
    view.apply(value + 1, [Item((value, n), 0, (str(n), value)) for n in range(1000)])
    return view


def write(path: Path, view: KeyValueView, about: str = "me") -> None:
    for _ in write_checkpoint(path, about, view.save()):
        pass


def read(path: Path, about: str = "me") -> KeyValueView:
    return restore_view(path, about, lambda: KeyValueView(0))


def test_checkpoint_of_another_run_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read(tmp_path / "view").time == 0
    write(tmp_path / "view", view_of(3))
    assert read(tmp_path / "view").get("999") == KeyVersion(3, 3)
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path / "view", "another").time == 0
    assert "is of another view or run; rebuilding the view" in caplog.text


def test_damage_anywhere_in_a_checkpoint_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "view"
    write(path, view_of(3))
    whole = path.read_bytes()
    for offset in range(0, len(whole), 101):
        path.write_bytes(whole[:offset] + bytes((whole[offset] ^ 4,)) + whole[offset + 1 :])
        assert read(path).time == 0
        path.write_bytes(whole[:offset])
        assert read(path).time == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 12), st.booleans())
def test_failed_write_leaves_the_old_or_the_new_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, seed: int, call: int, is_full: bool
) -> None:
    directory = tmp_path_factory.mktemp("views")
    with Disk(directory, Random(seed)) as disk:
        write(directory / "view", view_of(3))
        full = OSError(errno.ENOSPC, "No space left on device")
        disk.fail_at(call, full if is_full else PowerLoss())
        written = False
        try:
            write(directory / "view", view_of(5))
            written = True
        except Unavailable:
            assert is_full
        except PowerLoss:
            disk.lose_power()
        found = read(directory / "view").get("7")
        assert found == KeyVersion(5, 5) or (found == KeyVersion(3, 3) and not written)
        write(directory / "view", view_of(7))
        assert read(directory / "view").get("7") == KeyVersion(7, 7)
