"""What all tests of searching have in common."""

from __future__ import annotations

import pytest

from driftline.index.postings import pairs


@pytest.fixture(autouse=True)
def _pairs_in_small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some words of a segment are common, and others not."""
    monkeypatch.setattr(pairs, "COMMON_POSITIONS_MIN", 3)
