"""Sealed tails and merged segments contain exactly the data of their versions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.index.postings import memory_segment as tails
from driftline.index.postings import packing, pairs
from driftline.index.postings import segment as segments
from driftline.index.postings.merging import write
from driftline.index.postings.segment import Segment
from driftline.index.postings.segment_reader import SegmentReader, WordRun
from tests.index.postings.model import VersionRow, check, many_rows, rows, tail_of


@pytest.fixture(params=[1, 1 << 14], autouse=True)
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are independent of the sizes of batches of words and versions."""
    for module in (tails, segments, pairs):
        monkeypatch.setattr(module, "RUN_SIZE", request.param)
    monkeypatch.setattr(pairs, "_STEP_VERSIONS", request.param)
    monkeypatch.setattr(pairs, "COMMON_POSITIONS_MIN", 3)
    monkeypatch.setattr(packing, "_BULK_MAX", {1: 5, 1 << 14: 256}[request.param])
    monkeypatch.setattr(segments, "CACHE_RATIO", {1: 0, 1 << 14: 1}[request.param])


@settings(max_examples=15)
@given(rows, st.data())
def test_merge_result_is_independent_of_merge_order(
    some: list[VersionRow], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(some)), max_size=4)))
    bounds = list(pairwise([0, *cuts, len(some)]))
    with TemporaryDirectory() as folder:
        parts: list[SegmentReader] = []
        for begin, end in bounds:
            part: SegmentReader = tail_of(3 + begin, some[begin:end])
            if data.draw(st.booleans()):
                part = write([part], Path(folder, f"{begin}-{end}"))
                check(part, 3 + begin, some[begin:end])
            parts.append(part)
        while len(parts) > 1:
            at = data.draw(st.integers(0, len(parts) - 2))
            number = data.draw(st.integers(2, len(parts) - at))
            path = Path(folder, f"merged {len(parts)}")
            parts[at : at + number] = [write(parts[at : at + number], path)]
        check(parts[0], 3, some)


@settings(max_examples=15)
@given(rows, st.data())
def test_dropped_versions_leave_no_trace_in_a_merge(
    some: list[VersionRow], data: st.DataObject
) -> None:
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(some), max_size=len(some))))
    cut = data.draw(st.integers(0, len(some)))
    with TemporaryDirectory() as folder:
        first: SegmentReader = tail_of(7, some[:cut])
        if data.draw(st.booleans()):
            first = write([first], Path(folder, "first"))
        parts = [first, tail_of(7 + cut, some[cut:])]
        merged = write(parts, Path(folder, "merged"), kept.astype(np.bool_))
        check(merged, 7, [row for row, stays in zip(some, kept, strict=True) if stays])


@pytest.mark.slow
def test_segments_with_many_versions(tmp_path: Path) -> None:
    some = many_rows(32, seed=4)
    sealed: list[SegmentReader] = [
        write([tail_of(begin, some[begin:end])], tmp_path / f"{begin}")
        for begin, end in ((0, 14), (14, 15), (15, 28))
    ]
    check(sealed[0], 0, some[:14])
    sealed.append(tail_of(28, some[28:]))
    check(write(sealed, tmp_path / "all"), 0, some)
    check(Segment(tmp_path / "all"), 0, some)


@pytest.mark.slow
def test_merged_segment_file_equals_a_sealed_one(tmp_path: Path) -> None:
    """The merge order does not matter, so replicas can be compared. Stored blocks may differ."""
    some = many_rows(30, seed=5)
    some = [VersionRow(row.time, row.version._replace(stored=b"")) for row in some]
    write([tail_of(0, some)], tmp_path / "at once")
    first = write([tail_of(0, some[:15])], tmp_path / "first")
    second = write([tail_of(15, some[15:25]), tail_of(25, some[25:])], tmp_path / "second")
    write([first, second], tmp_path / "merged")
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "at once").read_bytes()


def test_failed_segment_write_leaves_no_file(tmp_path: Path) -> None:
    tail = tail_of(0, many_rows(3, seed=6))
    tail.documents = lambda: iter([([1], "no bytes")])  # type: ignore[method-assign, list-item]
    with pytest.raises(TypeError):
        write([tail], tmp_path / "never")
    assert not list(tmp_path.iterdir())


def test_pairs_of_versions_with_large_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_STEP_VERSIONS", 1 << 24)
    monkeypatch.setattr(pairs, "COMMON_POSITIONS_MIN", 1)
    ordinals = np.array([5, 1 << 26], np.uint32)
    one, two = np.array([1, 1], np.uint32), np.array([2, 2])
    common = pairs.CommonWords()
    for word, position in (("a", 7), ("b", 8)):
        positions = np.array([position, position], np.uint32)
        common.add(WordRun([word], two[:1], ordinals, one, positions))
    [run] = common.runs((1 << 26) + 1)
    assert run.words == [pairs.pair_of("a", "b")]
    assert run.ordinals.tolist() == [5, 1 << 26]
    assert run.positions.tolist() == [7, 7]
