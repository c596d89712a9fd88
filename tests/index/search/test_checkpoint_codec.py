"""Numbers and texts come back from the parts of a checkpoint, however many there are."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import SnapshotDamaged
from driftline.index.search.checkpoint_codec import NUMBERS, TEXTS, Saved, of_dictionary, of_numbers


@pytest.mark.parametrize("count", [0, 1, NUMBERS - 1, NUMBERS, NUMBERS + 1, 2 * NUMBERS])
def test_numbers(count: int) -> None:
    numbers = array("q", range(-(2**40), count - 2**40))
    saved = Saved([*of_numbers(numbers), *of_numbers(array("q", [5]))])
    assert saved.numbers() == numbers
    assert saved.numbers() == array("q", [5])
    with pytest.raises(SnapshotDamaged):
        saved.numbers()


@pytest.mark.parametrize("count", [0, 1, TEXTS - 1, TEXTS, TEXTS + 1, 2 * TEXTS])
def test_dictionaries(count: int) -> None:
    dictionary = {f"é{number}": -number for number in reversed(range(count))}
    parts = [*of_dictionary(dictionary), *of_dictionary({})]
    assert all(parts), "an empty part would end a checkpoint"
    saved = Saved(parts)
    assert list(saved.dictionary().items()) == list(dictionary.items())
    assert saved.dictionary() == {}


@given(st.lists(st.one_of(*(st.integers(-(2**bits), 2**bits - 1) for bits in (7, 8, 16, 32, 63)))))
def test_any_numbers(numbers: list[int]) -> None:
    assert Saved(list(of_numbers(array("q", numbers)))).numbers().tolist() == numbers
