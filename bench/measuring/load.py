"""The load of a service under measurement, and what was observed: the same for all systems.

A load is documents that are there before, and arrivals: documents and queries, each with the time
at which it is due, whatever the system does meanwhile. All latencies count from then on: a system
that stalls would otherwise leave out the very requests that waited (coordinated omission).

What a system is measured by:

- *freshness*: from the time at which a document is due until the answer to a query for a word that
  only this document has is there, and has this document. The query is asked as soon as the write
  has been acknowledged as durable: who is told so asks for it, as clients do. Nobody polls
  meanwhile, which would be work for the system that others don't have. So a freshness is never too
  short: it has the acknowledgement in it, and a whole query.
- *acknowledged*: from then until the write is acknowledged, as durable.
- *queries*: from the time at which a query is due until its answer is there.

Queries have the forms of the search-benchmark-game, with the words of the documents. A word is
drawn by Zipf: the one of rank r among all words of the documents as often as 1 / r. A phrase is two
words that follow each other somewhere in them. Words are of plain letters, so that every system
takes them for the same ones.

    >>> queries = Queries([("1", "tea tea and cake")], seed=1)
    >>> sorted(queries.ranked)
    ['and', 'cake', 'tea']
    >>> queries.ranked[0]
    'tea'
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.loops import poisson_schedule

LIMIT = 10
"""Hits of a query."""

KINDS = ("term", "union2", "union5", "intersection", "phrase")

READ = 4000
"""So many documents are read for words; that are more than the sample has different ones."""

_words = re.compile(r"\b[a-z]{2,20}\b").findall


class DrawnQuery(NamedTuple):
    """A query, however a system writes it."""

    kind: str
    words: list[str]

    @property
    def is_union(self) -> bool:
        """Whether one of the words is enough."""
        return self.kind.startswith("union")

    def text(self, together: str = " ", word: Callable[[str], str] = str) -> str:
        """Return the query in the language of a system, by default that of Driftline.

        `together`: between words that all have to be there; `word`: how a word is written.

        >>> [DrawnQuery(kind, ["a", "b"]).text() for kind in ("union2", "intersection", "phrase")]
        ['a OR b', 'a b', '"a b"']
        """
        if self.kind == "phrase":
            return '"' + " ".join(self.words) + '"'
        return (" OR " if self.is_union else together).join(map(word, self.words))


class Queries:
    """Draws queries; the same ones for the same documents and seed."""

    def __init__(self, documents: Documents, seed: int) -> None:
        self._texts = [found for _, text in documents[:READ] if len(found := _words(text.lower()))]
        counts = Counter(word for words in self._texts for word in words)
        self.ranked = sorted(counts, key=lambda word: (-counts[word], word))
        """All words, the most frequent first."""
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self.ranked) + 1)))
        self._random = Random(seed)

    def draw(self) -> DrawnQuery:
        """A query of any kind."""
        return self.of(self._random.choice(KINDS))

    def of(self, kind: str) -> DrawnQuery:
        """A query of a kind."""
        if kind == "phrase":
            words = self._random.choice(self._texts)
            first = self._random.randrange(max(1, len(words) - 1))
            return DrawnQuery(kind, words[first : first + 2])
        return DrawnQuery(kind, self._by_zipf({"term": 1, "union5": 5}.get(kind, 2)))

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


class DocumentArrival(NamedTuple):
    """A document that arrives; `word`: the one that only it has."""

    due_s: float
    id: str
    text: str
    word: str


class QueryArrival(NamedTuple):
    """A query that arrives."""

    due_s: float
    query: DrawnQuery


@dataclass(frozen=True, slots=True)
class Wanted:
    """A load that is wanted: so many documents before, so many documents and queries a second."""

    documents: int
    rate: float
    searches: float
    seconds: float
    """After the warm-up."""
    seed: int = 0

    @property
    def warmup_s(self) -> float:
        """What is due before this is not counted."""
        return min(2.0, self.seconds / 4)

    @property
    def needed(self) -> int:
        """The number of documents that it takes."""
        return self.documents + len(self._due(self.rate, 0))

    def load(self, documents: Documents) -> Load:
        """The load. Precondition: `documents` are as many as needed; the last ones arrive."""
        queries = Queries(documents, self.seed)
        arriving = []
        for number, due in enumerate(self._due(self.rate, 0)):
            id, text = documents[self.documents + number]
            word = unique_word(number)
            arriving.append(DocumentArrival(due, id, f"{text} {word}", word))
        asked = [QueryArrival(due, queries.draw()) for due in self._due(self.searches, 1)]
        return Load(documents[: self.documents], arriving, asked, self.warmup_s)

    def _due(self, rate: float, seed: int) -> list[float]:
        """The times at which something is due, as a Poisson process; none at a rate of 0."""
        if not rate:
            return []
        seconds = self.warmup_s + self.seconds
        found = poisson_schedule(round(2 * rate * seconds) + 100, rate, 2 * self.seed + seed)
        return [due for due in found if due < seconds]


@dataclass(frozen=True, slots=True)
class Load:
    """What every system gets. What is due before `warmup_s` is not counted."""

    documents: Documents
    arriving: Sequence[DocumentArrival]
    asked: Sequence[QueryArrival]
    warmup_s: float

    @property
    def ends_s(self) -> float:
        """When the last request is due."""
        due = [each.due_s for each in self.arriving] + [each.due_s for each in self.asked]
        return max(due, default=0.0)

    def write(self, path: Path) -> None:
        """Write the load, for the process of another system."""
        path.write_text(json.dumps([self.documents, self.arriving, self.asked, self.warmup_s]))

    @classmethod
    def read(cls, path: Path) -> Load:
        """The load that was written."""
        documents, arriving, asked, warmup_s = json.loads(path.read_text())
        return cls(
            [(id, text) for id, text in documents],
            [DocumentArrival(*each) for each in arriving],
            [QueryArrival(due, DrawnQuery(*query)) for due, query in asked],
            warmup_s,
        )


@dataclass(slots=True)
class Observed:
    """What was observed of a system; latencies in ms."""

    fill_per_s: float = 0.0
    """Documents a second of those before, until the last one was found."""
    freshness: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    queries: dict[str, list[float]] = field(default_factory=dict)
    late: list[float] = field(default_factory=list)
    """How late each request was begun: by this much the generator of the load was late."""
    errors: Counter[str] = field(default_factory=Counter)
    memory_mib: dict[str, float] = field(default_factory=dict)
    """Of each process, resident, at the end."""
    cores: dict[str, float] = field(default_factory=dict)
    """Of each process, busy on average while the load lasted."""
    figures: dict[str, float] = field(default_factory=dict)
    skipped: str = ""
    """Why nothing was observed."""

    def as_json(self) -> str:
        """All of it."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def of_json(cls, text: str) -> Observed:
        """What `as_json` has given."""
        found: Mapping[str, object] = json.loads(text)
        observed = cls(**found)  # type: ignore[arg-type]
        observed.errors = Counter(observed.errors)
        return observed
