"""Damage of a segment file is detected before wrong data is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.index.postings import pairs, sections
from driftline.index.postings.merging import write
from driftline.index.postings.sections import DamagedSegment, UnsupportedFormat
from driftline.index.postings.segment import Segment
from tests.index.postings.model import check, many_rows, tail_of

ROWS = many_rows(5, seed=8)


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    write([tail_of(5, ROWS)], tmp_path / "good")
    return (tmp_path / "good").read_bytes()


@pytest.mark.parametrize("page", [64, 1 << 16])
def test_flipped_bit_is_detected(
    page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "PAGE_BYTES", page)
    monkeypatch.setattr(pairs, "COMMON_POSITIONS_MIN", 20)
    write([tail_of(5, ROWS)], tmp_path / "good")
    data = (tmp_path / "good").read_bytes()
    errors: list[str] = []
    # The bytes 40 to 63 of the header are unused.
    offsets = [at for at in range(0, len(data), 127) if not 40 <= at < 64]
    for number, at in enumerate(offsets):
        path = tmp_path / f"{number % 2}"
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << number % 8]) + data[at + 1 :])
        try:
            check(Segment(path), 5, ROWS)
        except DamagedSegment as error:
            errors.append(str(error))
    assert len(errors) == len(offsets)
    assert all("is damaged" in error and "rebuilt" in error for error in errors)


def test_truncated_file_is_detected(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cut"
    for size in [*range(0, len(data), 101), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(DamagedSegment):
            Segment(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(DamagedSegment, match="the end is damaged"):
        Segment(path)


def test_file_of_another_format_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "FORMAT", 3)
    write([tail_of(0, ROWS)], tmp_path / "new")
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat, match="format is 3, not 2"):
        Segment(tmp_path / "new")
