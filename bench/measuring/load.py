"""The load that every system under comparison gets, and the measurements of a system.

A load consists of initial documents and of arrivals: documents and queries, each with a due time
that does not depend on the system. All latencies count from the due time. If they counted
from the time of sending, the requests that a stalled system held back would look fast (coordinated
omission).

The metrics:

- *freshness*: from the due time of a document until a query for a word that only this document has
  returns it. The client sends the query once the write is acknowledged as durable; polling earlier
  would be extra work for one system only. So the measured freshness is an upper bound: it includes
  the acknowledgement and a complete query.
- *acknowledged*: from the due time of a document until its write is acknowledged as durable.
- *queries*: from the due time of a query until its response arrives.

Queries have the forms of the search-benchmark-game, with words of the documents. Words are drawn
from a Zipf distribution: rank r has weight 1 / r. A phrase is two words that are adjacent somewhere
in the documents. Words consist of ASCII letters, so that every system tokenizes them alike.

    >>> queries = Queries([("1", "tea tea and cake")], seed=1)
    >>> sorted(queries.ranked_words)
    ['and', 'cake', 'tea']
    >>> queries.ranked_words[0]
    'tea'
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import fields

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.loops import poisson_schedule

HITS_MAX = 10
"""Maximum hits of a query."""

KINDS = ("term", "union2", "union5", "intersection", "phrase")
"""Kinds of queries; a union's name ends with its number of words."""

VOCABULARY_DOCUMENTS = 4000
"""The words of queries come from at most this many documents, the first ones."""

_find_words = re.compile(r"\b[a-z]{2,20}\b").findall


class DrawnQuery(NamedTuple):
    """A query, independent of a system's syntax."""

    kind: str
    words: list[str]

    @property
    def is_union(self) -> bool:
        """Whether one matching word is enough."""
        return self.kind.startswith("union")

    def text(self, and_operator: str = " ", format_word: Callable[[str], str] = str) -> str:
        """Return the query in the syntax of a system, by default that of Driftline.

        `and_operator` joins words that are all required. Words of a phrase are not formatted.

        >>> [DrawnQuery(kind, ["a", "b"]).text() for kind in ("union2", "intersection", "phrase")]
        ['a OR b', 'a b', '"a b"']
        """
        if self.kind == "phrase":
            return '"' + " ".join(self.words) + '"'
        return (" OR " if self.is_union else and_operator).join(map(format_word, self.words))


class Queries:
    """Generator of queries; deterministic for given documents and seed."""

    def __init__(self, documents: Documents, seed: int) -> None:
        self._word_lists = [
            words
            for _, text in documents[:VOCABULARY_DOCUMENTS]
            if len(words := _find_words(text.lower()))
        ]
        """The words of each text, in order."""
        counts = Counter(word for words in self._word_lists for word in words)
        self.ranked_words = sorted(counts, key=lambda word: (-counts[word], word))
        """All words, most frequent first."""
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self.ranked_words) + 1)))
        self._random = Random(seed)

    def draw(self) -> DrawnQuery:
        """Return a query of a random kind."""
        return self.draw_of_kind(self._random.choice(KINDS))

    def draw_of_kind(self, kind: str) -> DrawnQuery:
        """Return a query of a kind."""
        if kind == "phrase":
            words = self._random.choice(self._word_lists)
            start = self._random.randrange(max(1, len(words) - 1))
            return DrawnQuery(kind, words[start : start + 2])
        return DrawnQuery(kind, self._draw_words({"term": 1, "union5": 5}.get(kind, 2)))

    def _draw_words(self, count: int) -> list[str]:
        """Return `count` distinct words drawn by Zipf's law; fewer if the documents have fewer."""
        words: dict[str, None] = {}
        while len(words) < min(count, len(self.ranked_words)):
            words.update(
                dict.fromkeys(self._random.choices(self.ranked_words, cum_weights=self._weights))
            )
        return list(words)


def unique_word(number: int) -> str:
    """Return a word that no document has, different for each number.

    >>> unique_word(0), unique_word(27)
    ('zqxqaaaa', 'zqxqaabb')
    """
    letters = [chr(97 + number // 26**place % 26) for place in (3, 2, 1, 0)]
    return "zqxq" + "".join(letters)


class DocumentArrival(NamedTuple):
    """Arrival of a document; only this document contains `word`."""

    due_s: float  # since the start of the load
    id: str
    text: str
    word: str


class QueryArrival(NamedTuple):
    """Arrival of a query."""

    due_s: float  # since the start of the load
    query: DrawnQuery


class LoadParameters(Struct, frozen=True):
    """Parameters of a load."""

    documents: int
    """Number of initial documents."""
    documents_per_s: float
    queries_per_s: float
    seconds: float
    """Duration after the warm-up, in seconds."""
    seed: int = 0

    @property
    def warmup_s(self) -> float:
        """Duration of the warm-up; requests that are due during it are not counted."""
        return min(2.0, self.seconds / 4)

    @property
    def documents_needed(self) -> int:
        """The number of documents that `load` needs."""
        return self.documents + len(self._due_times(self.documents_per_s, 0))

    def load(self, documents: Documents) -> Load:
        """Return a load of documents: the first `self.documents` are initial, the next ones arrive.

        Precondition: at least `documents_needed` documents.
        """
        queries = Queries(documents, self.seed)
        document_arrivals = []
        for number, due in enumerate(self._due_times(self.documents_per_s, 0)):
            id, text = documents[self.documents + number]
            word = unique_word(number)
            document_arrivals.append(DocumentArrival(due, id, f"{text} {word}", word))
        query_due_times = self._due_times(self.queries_per_s, 1)
        query_arrivals = [QueryArrival(due, queries.draw()) for due in query_due_times]
        return Load(documents[: self.documents], document_arrivals, query_arrivals, self.warmup_s)

    def _due_times(self, rate: float, stream: int) -> list[float]:
        """Return the due times of a Poisson process; `stream`: 0 or 1, for independent seeds."""
        if not rate:
            return []
        seconds = self.warmup_s + self.seconds
        count = round(2 * rate * seconds) + 100  # more than needed: late ones are dropped below
        schedule = poisson_schedule(count, rate, 2 * self.seed + stream)
        return [due for due in schedule if due < seconds]


class Load(Struct, frozen=True):
    """The load that every system gets. Requests due before `warmup_s` are not counted."""

    documents: Documents
    document_arrivals: Sequence[DocumentArrival]
    query_arrivals: Sequence[QueryArrival]
    warmup_s: float

    @property
    def last_due_s(self) -> float:
        """Due time of the last request, in seconds since the start."""
        due = [each.due_s for each in self.document_arrivals] + [
            each.due_s for each in self.query_arrivals
        ]
        return max(due, default=0.0)

    def write(self, path: Path) -> None:
        """Write the load to a file, for the process that measures a peer."""
        path.write_text(
            json.dumps([self.documents, self.document_arrivals, self.query_arrivals, self.warmup_s])
        )

    @classmethod
    def read(cls, path: Path) -> Load:
        """Return the load that `write` wrote."""
        documents, document_arrivals, query_arrivals, warmup_s = json.loads(path.read_text())
        return cls(
            [(id, text) for id, text in documents],
            [DocumentArrival(*each) for each in document_arrivals],
            [QueryArrival(due, DrawnQuery(*query)) for due, query in query_arrivals],
            warmup_s,
        )


class Measurements(Struct):
    """Measurements of a system; the module's docstring defines its latencies, in ms."""

    fill_per_s: float = 0.0
    """Initial documents, divided by the seconds until queries could find all of them."""
    freshness_ms: list[float] = field(default_factory=list)
    acknowledged_ms: list[float] = field(default_factory=list)
    queries: dict[str, list[float]] = field(default_factory=dict)
    """Kind of query -> its latencies in ms."""
    send_delay_ms: list[float] = field(default_factory=list)
    """For each request, the time from its due time until it was sent."""
    errors: Counter[str] = field(default_factory=Counter)
    """Kind of error -> number of requests."""
    memory_mib: dict[str, float] = field(default_factory=dict)
    """Resident memory of each process at the end."""
    cores: dict[str, float] = field(default_factory=dict)
    """Average busy cores of each process during the load."""
    figures: dict[str, float] = field(default_factory=dict)
    """Further results of one system: name -> value."""
    skipped: str = ""
    """Why the system was not measured; "" if it was."""

    def as_json(self) -> str:
        """Return all fields as JSON."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def from_json(cls, text: str) -> Measurements:
        """Decode the result of `as_json`."""
        values: Mapping[str, object] = json.loads(text)
        measurements = cls(**values)  # type: ignore[arg-type]
        measurements.errors = Counter(measurements.errors)
        return measurements
