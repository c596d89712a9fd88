"""Text for tests and benchmarks: generated documents, a Wikipedia sample, and the words of a text.

    >>> [(time, document)] = ZipfSource(1, words_per_document=5, vocabulary=9).read(1)
    >>> time, document
    (1, {'id': 1, 'text': 'w1 w1 w6 w6 w6'})

The sample is the beginning of a dump of the English Wikipedia: 106 articles, 1.5 MB as bzip2. It is
part of the package `gensim`, which uses it in its own tests; gensim itself is never imported.

The index, the benchmark's floor and the statistics of a corpus share one definition of a word:

    >>> words({"id": 7, "title": "Cats", "text": "A cat eats; cats eat."})
    ['cats', 'a', 'cat', 'eats', 'cats', 'eat']
    >>> dict(positions_of_words("A cat eats a cat"))
    {'a': [0, 3], 'cat': [1, 4], 'eats': [2]}
"""

import importlib.util
import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from random import Random

from driftline.engine.errors import Unavailable
from driftline.engine.sources.source import BadRecord


class ZipfSource:
    """Generated documents `{"id": n, "text": "w12 w7 ..."}` with n from 1 to `documents`.

    Word frequencies follow Zipf's law, as in real text: the word of rank r occurs with a
    probability proportional to r ** -`exponent`. Document n depends only on the parameters and n,
    so reading can start at any document at no cost, and every process generates the same text.
    """

    def __init__(
        self,
        documents: int,
        words_per_document: int = 280,
        vocabulary: int = 50_000,
        exponent: float = 1.1,
        seed: int = 0,
    ) -> None:
        self.name = f"zipf of {documents} documents"
        self.documents = documents
        self._words_per_document = words_per_document
        self._words = [f"w{rank}" for rank in range(1, vocabulary + 1)]
        self._cumulative = list(accumulate(rank**-exponent for rank in range(1, vocabulary + 1)))
        self._exponent = exponent
        self._seed = seed

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield documents `start`, `start` + 1, ..."""
        for n in range(max(1, start), self.documents + 1):
            yield n, {"id": n, "text": self._text(n)}

    def _text(self, n: int) -> str:
        # Of the module random, only seeding and random() are guaranteed to stay the same in later
        # versions of Python. A text seed is hashed by sha512, so it is the same in all processes.
        random = Random(f"{self._seed} {n}").random
        words, cumulative, total = self._words, self._cumulative, self._cumulative[-1]
        count = self._words_per_document
        return " ".join([words[bisect(cumulative, random() * total)] for _ in range(count)])

    def progress(self) -> tuple[int, int] | None:
        """Return None: generated documents have no bytes on disk."""
        return None

    def identity(self) -> str:
        """Return a text with all parameters."""
        return (
            f"{self.name}, {self._words_per_document} words each of {len(self._words)}, "
            f"exponent {self._exponent}, seed {self._seed}"
        )


_find_words = re.compile(r"\w+").findall
"""Finds the words of a text: runs of letters, digits and underscores of any script."""


def words(document: Mapping[str, object]) -> list[str]:
    """Return the words of a document, in order and in lower case."""
    return words_of_text(document_text(document))


def words_of_text(text: str) -> list[str]:
    """Return the words of a text, in order and in lower case."""
    return _find_words(text.lower())


def positions_of_words(text: str) -> dict[str, list[int]]:
    """Return each word of a text, in order of first appearance, with its positions."""
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(_find_words(text.lower())):
        positions[word].append(position)
    return positions


def document_text(document: Mapping[str, object]) -> str:
    """Return the text from which words are taken: the title, if there is one, and the text."""
    text, title = document["text"], document.get("title")
    return f"{title}\n{text}" if title else str(text)


SAMPLE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


def find_sample() -> Path:
    """Return the path of the sample. Raises Unavailable with installation advice."""
    spec = importlib.util.find_spec("gensim")
    for folder in (spec and spec.submodule_search_locations) or []:
        path = Path(folder, "test", "test_data", SAMPLE)
        if path.is_file():
            return path
    raise Unavailable(
        "the Wikipedia sample is part of the package gensim, which is not installed (or is a "
        "version without the sample): pip install driftline[bench]"
    )
