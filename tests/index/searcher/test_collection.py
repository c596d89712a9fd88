"""Segment files of a collection: needed ones are kept, and their number is bounded."""

from __future__ import annotations

import shutil
from math import log
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.index.searcher.collection import (
    MERGE_RATIO,
    SMALL_MERGE_RATIO,
    SMALL_SIZE_MAX,
    SegmentFiles,
    first_to_merge,
)
from driftline.index.searcher.searcher import Searcher
from tests.index.search.model import Model, ModelDocument, ModelWrite
from tests.index.searcher.world import SCHEMA, check, items_of

MODEL = Model([2.0, 1.0])
MODEL.writes += [
    ModelWrite(time, "pq"[time % 2], ModelDocument((("a", "b"), ()))) for time in range(1, 40)
]
ITEMS = items_of(MODEL.writes)
QUERIES = ["title:a"]


def save_new_version(searcher: Searcher) -> list[bytes]:
    """Apply a new version and save a checkpoint; return its parts."""
    time = searcher.time + 1
    searcher.apply(time, [item for item in ITEMS if item.label[0] == searcher.time])
    searcher.freeze()
    return list(searcher.save())


@pytest.fixture
def searcher(tmp_path: Path) -> Searcher:
    """Return a searcher with two segments of equal size, which are due for a merge."""
    searcher = Searcher(SCHEMA, tmp_path / "index")
    searcher.apply(1, [])
    for _ in range(2):
        save_new_version(searcher)
        searcher.mark_saved()
    return searcher


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def check_loaded(directory: Path, parts: list[bytes]) -> None:
    """Check that a checkpoint loads with the current files."""
    other = shutil.copytree(directory, directory.with_name("copy"), dirs_exist_ok=False)
    searcher = Searcher(SCHEMA, other)
    searcher.load(parts)
    check([searcher], MODEL, QUERIES, searcher.time)
    shutil.rmtree(other)


def test_segments_of_the_valid_checkpoint_are_kept_until_the_next(
    tmp_path: Path, searcher: Searcher
) -> None:
    """A merge finishes while the checkpoint is written."""
    directory = tmp_path / "index"
    work = searcher.next_job()
    assert work is not None
    before = names(directory)
    parts = save_new_version(searcher)
    work.do()
    work.on_success()
    searcher.mark_saved()
    assert set(before) < set(names(directory))
    check_loaded(directory, parts)
    next_parts = save_new_version(searcher)
    check_loaded(directory, parts)
    check_loaded(directory, next_parts)
    searcher.mark_saved()
    check_loaded(directory, next_parts)
    assert len(names(directory)) == searcher.figures()["segments"] == 3


def test_segments_being_merged_are_kept(tmp_path: Path, searcher: Searcher) -> None:
    work = searcher.next_job()
    assert work is not None
    work.do()
    for _ in range(2):
        save_new_version(searcher)
        searcher.mark_saved()
    work.on_success()
    check([searcher], MODEL, QUERIES, searcher.time)
    parts = save_new_version(searcher)
    searcher.mark_saved()
    check_loaded(tmp_path / "index", parts)
    assert len(names(tmp_path / "index")) == searcher.figures()["segments"] == 4


def test_failed_merge_changes_nothing(tmp_path: Path, searcher: Searcher) -> None:
    work = searcher.next_job()
    assert work is not None
    work.on_success()  # although the job wrote no file
    check([searcher], MODEL, QUERIES, searcher.time)
    assert searcher.next_job() is None
    assert searcher.figures()["segments"] == 2


def test_draft_is_kept_while_its_segment_is_missing_and_needed(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    name = files.new()
    draft = tmp_path / f".{name}.77"
    draft.touch()
    files.sweep({name})
    assert names(tmp_path) == [draft.name]
    (tmp_path / name).touch()
    files.sweep({name})
    assert names(tmp_path) == [name]
    files.sweep(())
    assert names(tmp_path) == []


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=300),
    st.sampled_from([1, 40_000, SMALL_SIZE_MAX + 1]),
)
@example([1] * 300, 1)
@example([1] * 300, 40_000)
@example([1] * 300, SMALL_SIZE_MAX + 1)
def test_merge_policy_bounds_segments_and_copies_per_version(counts: list[int], each: int) -> None:
    saved = [count * each for count in counts]
    sizes: list[int] = []
    copied = most = 0
    for size in saved:
        sizes.append(size)
        most = max(most, len(sizes))
        if run := sizes[first_to_merge(sizes) :]:
            assert len(run) > 1
            copied += sum(run)
            sizes[-len(run) :] = [sum(run)]
    total = sum(saved)
    assert sum(sizes) == total
    # Each remaining segment is larger than MERGE_RATIO times all later ones together; one is new.
    assert most <= 2 + log(total / each + 1, MERGE_RATIO + 1)
    # Each copy of a version leads to a segment that is larger by a factor of 1 + 1 / ratio.
    small = min(total, SMALL_SIZE_MAX) // each  # 0: no segment is small
    times = log(small + 1, 1 + 1 / SMALL_MERGE_RATIO)
    times += log(total / each / max(small, 1) + 1, 1 + 1 / MERGE_RATIO)
    assert copied <= total * (1 + times)
