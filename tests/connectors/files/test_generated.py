"""The sources that need no file: in memory, made up, repeated."""

import importlib.util
import subprocess
import sys
from collections import Counter
from importlib.machinery import ModuleSpec

import pytest

from driftline.connectors.files import ZipfSource, find_sample, open_source
from driftline.connectors.files.generated import positions_of_words, words
from driftline.engine.errors import Unavailable
from driftline.engine.sources import BadRecord, ListSource, Repeated, strict
from tests.connectors.files.samples import everything

ONE = "from connectors.files import ZipfSource; print(*ZipfSource(9, 6, 20, seed=3).read(9))"


def texts_of(source: ZipfSource) -> list[list[str]]:
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


def test_zipf_source_generates_the_same_text_in_every_process() -> None:
    out = subprocess.run([sys.executable, "-c", ONE], capture_output=True, text=True, check=True)
    [found] = ZipfSource(9, 6, 20, seed=3).read(9)
    assert out.stdout.strip() == str(found)
    assert found == (9, {"id": 9, "text": PINNED})


PINNED = "w1 w17 w1 w2 w4 w2"
"""Also in a later version of Python: a recorded run has to be repeatable."""


def test_words_are_as_unevenly_frequent_as_the_exponent_says() -> None:
    counts = Counter(word for text in texts_of(ZipfSource(100, vocabulary=1000)) for word in text)
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


def test_id_too_large_to_repeat_is_a_bad_record() -> None:
    found = everything(Repeated(ListSource([{"id": 2**40}]), 2))
    assert found[0] == (1, {"id": 2**40})
    assert isinstance(found[1], BadRecord)
    assert found[1].time == 2


def test_words_are_lower_case_letters_digits_and_underscores() -> None:
    text = "Über-Maß, it's snake_case\n3.5 мир 東京"
    assert " ".join(words({"text": text})) == "über maß it s snake_case 3 5 мир 東京"


def test_positions_of_words_match_the_word_list() -> None:
    text = "Sea, sea: see the SEA"
    found = positions_of_words(text)
    assert list(found.items()) == [("sea", [0, 1, 4]), ("see", [2]), ("the", [3])]
    assert all(words({"text": text})[place] == word for word in found for place in found[word])


@pytest.fixture(scope="module")
def documents() -> list[dict[str, str]]:
    source = open_source(find_sample(), sections=True)
    return [record for _, record in strict(source.read(1)) if isinstance(record, dict)]


def test_sample_has_the_expected_pages_and_sections(documents: list[dict[str, str]]) -> None:
    pages = list(strict(open_source(find_sample()).read(1)))
    assert [time for time, _ in pages] == list(range(1, 107))
    assert pages[0][1] == pages[0][1] | {"id": 12, "title": "Anarchism"}  # type: ignore[operator]
    words = sum(len(document["text"].split()) for document in documents)
    assert (len(documents), words) == (2043, 450_653)
    assert len({document["id"] for document in documents}) == len(documents)


def test_sample_is_clean(documents: list[dict[str, str]]) -> None:
    text = "\n".join(document["text"] for document in documents)
    for markup in ("{{", "}}", "[[", "]]", "''", "<ref", "<!--", "&nbsp;", "File:", "Category:"):
        assert text.count(markup) == 0, markup
    assert documents[1]["title"] == "Anarchism: Etymology and terminology"
    assert documents[0]["text"].startswith(
        "Anarchism is a political philosophy that advocates self-governed societies based on"
    )


def test_without_gensim_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)
    with pytest.raises(Unavailable, match=r"pip install driftline\[bench\]"):
        find_sample()
