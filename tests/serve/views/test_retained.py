"""How far back a view answers, over restarts of its process."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.serve.views.checkpoint import Retained, noted


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("restarts_every", [1, 7, 1000])
def test_it_answers_so_far_back_and_not_much_further(tmp_path: Path, restarts_every: int) -> None:
    """A process that has a checkpoint every 30 s, and dies at times."""
    clock, path = Clock(), tmp_path / "retained"
    retained = Retained(600, clock)
    since = 0
    for turn in range(1, 200):
        clock.now += 30
        if turn % restarts_every == 0:
            retained = Retained(600, clock, noted(path, turn - 1))
        since = max(since, retained.since(turn))
        retained.write(path)
        assert since <= max(0, turn - 20), "what was the newest 600 s ago can be asked for"
        assert since >= turn - 22, "and what was so 60 s before that cannot"
    assert path.stat().st_size < 2_000


def test_notes_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    path = tmp_path / "retained"
    assert noted(path, 5) == []
    for content in (b"", b"\xc1 no notes", b"\x93\x01\x02\x03"):
        path.write_bytes(content)
        assert noted(path, 5) == []


def test_notes_of_a_later_checkpoint_do_not_count(tmp_path: Path) -> None:
    """One that could not be written any more; a view that is rebuilt begins at 0."""
    clock, path = Clock(), tmp_path / "retained"
    retained = Retained(60, clock)
    for newest in (10, 20, 30):
        clock.now += 30
        retained.since(newest)
    retained.write(path)
    assert [newest for _, newest in noted(path, 25)] == [10, 20]
    assert noted(path, 0) == []


def test_a_clock_that_is_put_back_forgets_nothing() -> None:
    clock = Clock()
    retained = Retained(60, clock)
    retained.since(10)
    clock.now -= 5_000
    assert [retained.since(newest) for newest in (20, 30)] == [0, 0]
    clock.now += 5_100
    assert retained.since(40) == 10
