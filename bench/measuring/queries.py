"""Queries of the forms of the search-benchmark-game, with the words of the documents.

A word is drawn by Zipf: the one of rank r among all words of the documents as often as 1 / r. A
phrase is two words that follow each other somewhere in them. Words are of plain letters, so that
every system takes them for the same ones.

    >>> queries = Queries([("1", "tea tea and cake")], seed=1)
    >>> sorted(queries.ranked)
    ['and', 'cake', 'tea']
    >>> queries.ranked[0]
    'tea'
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate
from random import Random
from typing import NamedTuple

from driftline.bench.measuring.corpus import Documents

KINDS = ("term", "union2", "union5", "intersection", "phrase")

READ = 4000
"""So many documents are read for words; that are more than the sample has different ones."""

_words = re.compile(r"\b[a-z]{2,20}\b").findall


class Query(NamedTuple):
    """A query, however a system writes it."""

    kind: str
    words: list[str]


class Queries:
    """Draws queries; the same ones for the same documents and seed."""

    def __init__(self, documents: Documents, seed: int) -> None:
        self._texts = [found for _, text in documents[:READ] if len(found := _words(text.lower()))]
        counts = Counter(word for words in self._texts for word in words)
        self.ranked = sorted(counts, key=lambda word: (-counts[word], word))
        """All words, the most frequent first."""
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self.ranked) + 1)))
        self._random = Random(seed)

    def draw(self) -> Query:
        """A query of any kind."""
        return self.of(self._random.choice(KINDS))

    def of(self, kind: str) -> Query:
        """A query of a kind."""
        if kind == "phrase":
            words = self._random.choice(self._texts)
            first = self._random.randrange(max(1, len(words) - 1))
            return Query(kind, words[first : first + 2])
        return Query(kind, self._by_zipf({"term": 1, "union5": 5}.get(kind, 2)))

    def _by_zipf(self, count: int) -> list[str]:
        """Different words, as far as there are so many."""
        found: dict[str, None] = {}
        while len(found) < min(count, len(self.ranked)):
            found.update(
                dict.fromkeys(self._random.choices(self.ranked, cum_weights=self._weights))
            )
        return list(found)


def unique_word(number: int) -> str:
    """A word that no document has, a different one for each number.

    >>> unique_word(0), unique_word(27)
    ('zqxqaaaa', 'zqxqaabb')
    """
    letters = [chr(97 + number // 26**place % 26) for place in (3, 2, 1, 0)]
    return "zqxq" + "".join(letters)
