"""Retention of a view across restarts of its process."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.serve.views.checkpoint import Retention, read_notes


class RetentionClock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("restart_interval", [1, 7, 1000])
def test_retention_covers_the_requested_period_and_little_more(
    tmp_path: Path, restart_interval: int
) -> None:
    """The process writes a checkpoint every 30 s and restarts at intervals."""
    clock, path = RetentionClock(), tmp_path / "retained"
    retained = Retention(600, clock)
    since = 0
    for turn in range(1, 200):
        clock.now += 30
        if turn % restart_interval == 0:
            retained = Retention(600, clock, read_notes(path, turn - 1))
        since = max(since, retained.oldest_to_retain(turn))
        retained.write(path)
        assert since <= max(0, turn - 20), "the newest T of 600 s ago is not retained"
        assert since >= turn - 22, "a T older than 660 s is still retained"
    assert path.stat().st_size < 2_000


def test_unreadable_retention_notes_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "retained"
    assert read_notes(path, 5) == []
    for content in (b"", b"\xc1 no notes", b"\x93\x01\x02\x03"):
        path.write_bytes(content)
        assert read_notes(path, 5) == []


def test_notes_of_later_checkpoints_are_ignored(tmp_path: Path) -> None:
    """Ignore notes newer than the loaded checkpoint, which may be 0 after a rebuild."""
    clock, path = RetentionClock(), tmp_path / "retained"
    retained = Retention(60, clock)
    for newest in (10, 20, 30):
        clock.now += 30
        retained.oldest_to_retain(newest)
    retained.write(path)
    assert [newest for _, newest in read_notes(path, 25)] == [10, 20]
    assert read_notes(path, 0) == []


def test_backward_clock_jump_does_not_shorten_retention() -> None:
    clock = RetentionClock()
    retained = Retention(60, clock)
    retained.oldest_to_retain(10)
    clock.now -= 5_000
    assert [retained.oldest_to_retain(newest) for newest in (20, 30)] == [0, 0]
    clock.now += 5_100
    assert retained.oldest_to_retain(40) == 10
