"""Sources without a file: in memory, generated, repeated."""

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from driftline.connectors.files import ZipfSource, find_sample, open_source
from driftline.engine.errors import Unavailable
from driftline.engine.sources import ListSource, Repeated, strict

ONE = "from connectors.files import ZipfSource; print(*ZipfSource(9, 6, 20, seed=3).read(9))"


def test_zipf_source_generates_the_same_text_in_every_process() -> None:
    out = subprocess.run([sys.executable, "-c", ONE], capture_output=True, text=True, check=True)
    [found] = ZipfSource(9, 6, 20, seed=3).read(9)
    assert out.stdout.strip() == str(found)
    assert found == (9, {"id": 9, "text": PINNED})


PINNED = "w1 w17 w1 w2 w4 w2"
"""Later versions of Python must generate the same text. A recorded run has to be repeatable."""


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


def test_without_gensim_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)
    with pytest.raises(Unavailable, match=r"pip install driftline\[bench\]"):
        find_sample()
