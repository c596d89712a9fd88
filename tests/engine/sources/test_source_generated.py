"""The sources that need no file: in memory, made up, repeated."""

import subprocess
import sys
from collections import Counter

import pytest

from driftline.engine.sources import BadRecord, ListSource, Repeated, ZipfSource, strict
from tests.engine.sources.files import everything

ONE = "from engine.sources import ZipfSource; print(*ZipfSource(9, 6, 20, seed=3).read(9))"


def words(source: ZipfSource) -> list[list[str]]:
    texts = [
        dict(record)["text"] for _, record in strict(source.read(1)) if isinstance(record, dict)
    ]
    return [text.split() for text in texts]


def test_a_list_keeps_its_records_and_numbers_them() -> None:
    source = ListSource(["a", 2, {"id": 3}], name="three", first=4)
    assert everything(source) == [(4, "a"), (5, 2), (6, {"id": 3})]
    assert source.name == "three"
    assert source.progress() is None
    assert source.identity() == ListSource(["a", 2, {"id": 3}], name="three", first=4).identity()
    assert source.identity() != ListSource(["a", 2, {"id": 4}], name="three", first=4).identity()
    with pytest.raises(AssertionError):
        ListSource([BadRecord(2, "f", "out of place", "")])


def test_another_process_makes_up_the_same_text() -> None:
    out = subprocess.run([sys.executable, "-c", ONE], capture_output=True, text=True, check=True)
    [found] = ZipfSource(9, 6, 20, seed=3).read(9)
    assert out.stdout.strip() == str(found)
    assert found == (9, {"id": 9, "text": PINNED})


PINNED = "w1 w17 w1 w2 w4 w2"
"""Also in a later version of Python: a recorded run has to be repeatable."""


def test_documents_differ_by_number_and_by_seed() -> None:
    first, second = (words(ZipfSource(20, seed=seed)) for seed in (0, 1))
    assert len({tuple(text) for text in first + second}) == 40
    assert {len(text) for text in first} == {280}
    assert ZipfSource(20, seed=0).identity() != ZipfSource(20, seed=1).identity()


def test_words_are_as_unevenly_frequent_as_the_exponent_says() -> None:
    counts = Counter(word for text in words(ZipfSource(100, vocabulary=1000)) for word in text)
    weights = [rank**-1.1 for rank in range(1, 1001)]
    for rank in (1, 2, 3, 10, 30):
        expected = 28_000 * weights[rank - 1] / sum(weights)
        assert abs(counts[f"w{rank}"] - expected) < 5 * expected**0.5


def test_repeated_ids_are_unique_and_of_their_type() -> None:
    source = Repeated(ListSource([{"id": 7, "x": 1}, {"id": "b"}]), 6)
    documents = [record for _, record in strict(source.read(1)) if isinstance(record, dict)]
    assert documents == [
        {"id": 7, "x": 1},
        {"id": "b"},
        {"id": 7 + 2**40, "x": 1},
        {"id": "b~2"},
        {"id": 7 + 2**41, "x": 1},
        {"id": "b~3"},
    ]
    assert source.identity() != Repeated(ListSource([{"id": 7, "x": 1}, {"id": "b"}]), 5).identity()


def test_an_id_too_large_to_repeat_is_said() -> None:
    found = everything(Repeated(ListSource([{"id": 2**40}]), 2))
    assert found[0] == (1, {"id": 2**40})
    assert isinstance(found[1], BadRecord)
    assert found[1].time == 2


def test_nothing_repeated_is_nothing() -> None:
    assert everything(Repeated(ListSource([]), 100)) == []
