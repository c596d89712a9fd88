"""Packed lists round-trip: one or several, at any offset in a file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.index.postings import packing
from driftline.index.postings.packing import (
    Numbers,
    delta_decode,
    delta_encode,
    pack_lists,
    unpack_list,
    unpack_lists,
)

numbers = st.sampled_from([0, 8, 16, 32]).flatmap(lambda width: st.integers(0, (1 << width) - 1))
lists = st.lists(st.lists(numbers, max_size=6), max_size=5)


@pytest.fixture(params=[0, 3, 256], autouse=True)
def _long(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are the same if lists are copied one by one or in bulk."""
    monkeypatch.setattr(packing, "_BULK_MAX", request.param)


def array(values: list[int]) -> Numbers:
    return np.array(values, np.uint32)


@given(lists, st.integers(0, 20))
def test_packed_lists_round_trip_at_any_offset(values: list[list[int]], begin: int) -> None:
    counts = np.array([len(some) for some in values], np.intp)
    packed, places = pack_lists(array([value for some in values for value in some]), counts)
    assert places[-1] == len(packed)
    data = np.concatenate([np.full(begin, 165, np.uint8), packed, np.full(9, 255, np.uint8)])
    found, ends = unpack_lists(data, begin + places[:-1], counts)
    assert found.tolist() == [value for some in values for value in some]
    assert ends.tolist() == (begin + places[1:]).tolist()
    for some, at, after in zip(values, places, places[1:], strict=False):
        one, end = unpack_list(data, begin + int(at), len(some))
        assert (one.tolist(), end) == (some, begin + after)


@given(lists)
def test_delta_encoding_of_several_lists_round_trips(values: list[list[int]]) -> None:
    ascending = [sorted(set(some)) for some in values]
    counts = np.array([len(some) for some in ascending], np.intp)
    flat = array([value for some in ascending for value in some])
    expected = [
        value - before - 1
        for some in ascending
        if some
        for before, value in zip([-1, *some[:-1]], some, strict=True)
    ]
    assert delta_encode(flat, counts).tolist() == expected
    assert delta_decode(delta_encode(flat, counts), counts).tolist() == flat.tolist()
