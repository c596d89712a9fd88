"""Stored queries of all forms, and documents that some of them match.

A word is drawn by Zipf, but never one of the most frequent: so most watches are of rare words, as
what people wait for is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from random import Random

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.queries import Queries, unique_word
from driftline.index.query.syntax import quoted

SCHEMA = """
[collections.documents.fields]
text = {kind = "text"}
article = {kind = "keyword"}
words = {kind = "number"}
"""

HEAD = 1000
"""So many of the most frequent words are never watched alone."""

SHARES = {"term": 300, "intersection": 300, "phrase": 200, "field": 100, "long": 50, "keyword": 49,
          "range": 1}  # fmt: skip
"""Of a thousand watches so many are of a form."""

PROBE, PROBED = "last", unique_word(0)
"""The watch that the last document matches, by this word."""

Document = Mapping[str, object]


def as_documents(documents: Documents) -> list[Document]:
    """What is put in; the last one has the word that is watched for."""
    found: list[Document] = [
        {"id": id, "text": text, "article": [_article(id)], "words": len(text.split())}
        for id, text in documents
    ]
    last = found[-1]
    return [*found[:-1], {**last, "text": f"{last['text']} {PROBED}"}]


def _article(id: str) -> str:
    """The article of a section; of what is no section, the document itself."""
    return id.partition("#")[0]


class Stored:
    """Draws stored queries, the same ones for the same documents and seed.

    A word is drawn by Zipf, but for the most frequent ones: so most are rare, as what people wait
    for is.
    """

    def __init__(self, documents: Documents, seed: int) -> None:
        self._queries = Queries(documents, seed)
        ranked = self._queries.ranked
        head = min(HEAD, len(ranked) // 2)
        self._rare: list[str] = ranked[head:]
        self._weights = list(accumulate(1 / rank for rank in range(head + 1, len(ranked) + 1)))
        self._known = frozenset(self._rare)
        self._articles = sorted({_article(id) for id, _ in documents})
        self._lengths = sorted(len(text.split()) for _, text in documents)
        self._random = Random(seed)
        self._forms: dict[str, Callable[[], str]] = {
            "term": self._word,
            "intersection": lambda: f"{self._word()} {self._queries.of('term').words[0]}",
            "phrase": self._phrase,
            "field": lambda: f"text:{self._word()}",
            "long": lambda: f"{self._word()} words:>={self._random.choice(self._lengths)}",
            "keyword": lambda: f"article:{quoted(self._random.choice(self._articles))}",
            "range": self._range,
        }

    def draw(self, count: int) -> list[str]:
        """So many queries of all forms."""
        forms = self._random.choices(list(SHARES), list(SHARES.values()), k=count)
        return [self._forms[form]() for form in forms]

    def _word(self) -> str:
        return self._random.choices(self._rare, cum_weights=self._weights)[0]

    def _phrase(self) -> str:
        """Two words that follow each other somewhere; one of them is rare."""
        while True:
            words = self._queries.of("phrase").words
            if not self._known.isdisjoint(words):
                return quoted(" ".join(words))

    def _range(self) -> str:
        low = self._random.choice(self._lengths)
        return f"words:[{low} TO {low + 5}]"
