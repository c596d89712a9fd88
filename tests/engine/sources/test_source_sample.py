"""The sample of the English Wikipedia: it is there, and it is what the benchmark counts on."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec

import pytest

from driftline.engine.errors import Unavailable
from driftline.engine.sources import find_sample, open_source, strict


@pytest.fixture(scope="module")
def documents() -> list[dict[str, str]]:
    source = open_source(find_sample(), sections=True)
    return [record for _, record in strict(source.read(1)) if isinstance(record, dict)]


def test_sample_has_the_pages_and_sections_that_it_should(documents: list[dict[str, str]]) -> None:
    pages = list(strict(open_source(find_sample()).read(1)))
    assert [time for time, _ in pages] == list(range(1, 107))
    assert pages[0][1] == pages[0][1] | {"id": 12, "title": "Anarchism"}  # type: ignore[operator]
    words = sum(len(document["text"].split()) for document in documents)
    assert (len(documents), words) == (2043, 450_653)
    assert len({document["id"] for document in documents}) == len(documents)


def test_gensim_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gensim", raising=False)  # another test may have done it
    assert find_sample().is_file()
    assert "gensim" not in sys.modules


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
