"""Fixtures for all tests of the search."""

from __future__ import annotations

import pytest

from driftline.index.postings import pairs


@pytest.fixture(autouse=True)
def _pairs_in_small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the threshold for word pairs, so that small segments contain some."""
    monkeypatch.setattr(pairs, "COMMON_POSITIONS_MIN", 3)
