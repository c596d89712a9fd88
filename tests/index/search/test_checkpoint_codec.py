"""Number arrays and dictionaries of any size round-trip through the parts of a checkpoint."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import SnapshotDamaged
from driftline.index.search.checkpoint_codec import (
    NUMBERS_PER_PART,
    TEXTS_PER_PART,
    CheckpointReader,
    encode_dictionary,
    encode_numbers,
)


@pytest.mark.parametrize(
    "count",
    [0, 1, NUMBERS_PER_PART - 1, NUMBERS_PER_PART, NUMBERS_PER_PART + 1, 2 * NUMBERS_PER_PART],
)
def test_large_number_arrays_round_trip(count: int) -> None:
    numbers = array("q", range(-(2**40), count - 2**40))
    saved = CheckpointReader([*encode_numbers(numbers), *encode_numbers(array("q", [5]))])
    assert saved.numbers() == numbers
    assert saved.numbers() == array("q", [5])
    with pytest.raises(SnapshotDamaged):
        saved.numbers()


@pytest.mark.parametrize(
    "count", [0, 1, TEXTS_PER_PART - 1, TEXTS_PER_PART, TEXTS_PER_PART + 1, 2 * TEXTS_PER_PART]
)
def test_dictionaries_round_trip(count: int) -> None:
    dictionary = {f"é{number}": -number for number in reversed(range(count))}
    parts = [*encode_dictionary(dictionary), *encode_dictionary({})]
    assert all(parts), "an empty part would end the checkpoint"
    saved = CheckpointReader(parts)
    assert list(saved.dictionary().items()) == list(dictionary.items())
    assert saved.dictionary() == {}


@given(st.lists(st.one_of(*(st.integers(-(2**bits), 2**bits - 1) for bits in (7, 8, 16, 32, 63)))))
def test_arbitrary_number_arrays_round_trip(numbers: list[int]) -> None:
    assert CheckpointReader(list(encode_numbers(array("q", numbers)))).numbers().tolist() == numbers
