"""Lists come back as they were packed: one, many, whole, or some blocks of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.index.postings import packing
from driftline.index.postings.packing import (
    BLOCK,
    SLACK,
    Numbers,
    Packed,
    block_lasts,
    block_maxima,
    edges,
    gaps,
    pack,
    pack_lists,
    sums,
    unpack,
    unpack_at,
    unpack_lists,
)

numbers = st.integers(0, 32).flatmap(lambda width: st.integers(0, (1 << width) - 1))
short = st.lists(numbers, max_size=6)
long = st.builds(
    lambda pattern, times: (pattern * times)[:600], st.lists(numbers, min_size=1), st.just(600)
)
lists = st.lists(short | long, max_size=5)


@pytest.fixture(params=[1, 1 << 14], autouse=True)
def _portions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same however much is worked off at once; at least a block is."""
    monkeypatch.setattr(packing, "_AT_ONCE", max(request.param, BLOCK))


def array(values: list[int]) -> Numbers:
    return np.array(values, np.uint32)


def in_words(data: bytes, begin: int) -> Packed:
    """Packed lists somewhere in memory, with anything before and behind them."""
    size = begin + len(data)
    return np.frombuffer(bytes([165]) * begin + data + b"\xff" * (SLACK + -size % 8), "<u8")


@given(short | long)
def test_a_list_comes_back(values: list[int]) -> None:
    data = pack(array(values), ascending=False)
    assert unpack(data, len(values), ascending=False).tolist() == values


@given(short | long)
def test_an_ascending_list_comes_back(values: list[int]) -> None:
    ascending = sorted(set(values))
    data = pack(array(ascending), ascending=True)
    assert unpack(data, len(ascending), ascending=True).tolist() == ascending


def test_neighbours_take_no_bits() -> None:
    assert pack(np.arange(1000, dtype=np.uint32), ascending=True) == bytes(8)
    assert pack(np.ones(1000, np.uint32), ascending=False) == (b"\1" * 8) + b"\xff" * 125


@given(lists, st.integers(0, 20))
def test_many_lists_come_back_from_anywhere(values: list[list[int]], begin: int) -> None:
    counts = np.array([len(some) for some in values], np.intp)
    flat = array([value for some in values for value in some])
    data, places = pack_lists(flat, counts)
    assert data.tobytes() == b"".join(pack(array(some), ascending=False) for some in values)
    assert places[-1] == len(data)
    found, ends = unpack_lists(in_words(data.tobytes(), begin), begin + places[:-1], counts)
    assert found.tolist() == flat.tolist()
    assert ends.tolist() == (begin + places[1:]).tolist()


@given((short | long).filter(len), st.integers(0, 20), st.lists(st.integers(0, 599), max_size=9))
def test_some_values_come_back(values: list[int], begin: int, some: list[int]) -> None:
    places = [place % len(values) for place in some]
    data = in_words(pack(array(values), ascending=False), begin)
    found = unpack_at(data, begin, len(values), np.array(places, np.intp))
    assert found.tolist() == [values[place] for place in places]


@given(lists)
def test_gaps_of_several_lists_say_what_each_leaves_out(values: list[list[int]]) -> None:
    ascending = [sorted(set(some)) for some in values]
    counts = np.array([len(some) for some in ascending], np.intp)
    flat = array([value for some in ascending for value in some])
    expected = [
        value - before - 1
        for some in ascending
        if some
        for before, value in zip([-1, *some[:-1]], some, strict=True)
    ]
    assert gaps(flat, counts).tolist() == expected
    assert sums(gaps(flat, counts), counts).tolist() == flat.tolist()


@given(lists)
def test_the_last_and_the_largest_value_of_each_block(values: list[list[int]]) -> None:
    blocks = [some[at : at + BLOCK] for some in values for at in range(0, len(some), BLOCK)]
    counts = np.array([len(some) for some in values], np.intp)
    flat = array([value for some in values for value in some])
    assert block_lasts(flat, counts).tolist() == [block[-1] for block in blocks]
    assert block_maxima(flat, counts).tolist() == [max(block) for block in blocks]
    assert edges(counts)[-1] == len(flat)
