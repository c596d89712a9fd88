"""The load that is sent to every system under comparison, and the record of what is measured.

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
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import fields

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.loops import poisson_schedule

LIMIT = 10
"""Maximum hits of a query."""

KINDS = ("term", "union2", "union5", "intersection", "phrase")

VOCABULARY_DOCUMENTS = 4000
"""The words of queries come from this many first documents."""

_find_words = re.compile(r"\b[a-z]{2,20}\b").findall


class DrawnQuery(NamedTuple):
    """A query, independent of a system's syntax."""

    kind: str
    words: list[str]

    @property
    def is_union(self) -> bool:
        """Whether one matching word is enough."""
        return self.kind.startswith("union")

    def text(self, together: str = " ", word: Callable[[str], str] = str) -> str:
        """Return the query in the syntax of a system, by default that of Driftline.

        `together` joins words that are all required; `word` formats a word, but not in a phrase.

        >>> [DrawnQuery(kind, ["a", "b"]).text() for kind in ("union2", "intersection", "phrase")]
        ['a OR b', 'a b', '"a b"']
        """
        if self.kind == "phrase":
            return '"' + " ".join(self.words) + '"'
        return (" OR " if self.is_union else together).join(map(word, self.words))


class Queries:
    """Generator of queries; deterministic for given documents and seed."""

    def __init__(self, documents: Documents, seed: int) -> None:
        self._texts = [
            found
            for _, text in documents[:VOCABULARY_DOCUMENTS]
            if len(found := _find_words(text.lower()))
        ]
        counts = Counter(word for words in self._texts for word in words)
        self.ranked = sorted(counts, key=lambda word: (-counts[word], word))
        """All words, most frequent first."""
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self.ranked) + 1)))
        self._random = Random(seed)

    def draw(self) -> DrawnQuery:
        """Return a query of a random kind."""
        return self.draw_of_kind(self._random.choice(KINDS))

    def draw_of_kind(self, kind: str) -> DrawnQuery:
        """Return a query of a kind."""
        if kind == "phrase":
            words = self._random.choice(self._texts)
            first = self._random.randrange(max(1, len(words) - 1))
            return DrawnQuery(kind, words[first : first + 2])
        return DrawnQuery(kind, self._by_zipf({"term": 1, "union5": 5}.get(kind, 2)))

    def _by_zipf(self, count: int) -> list[str]:
        """Return `count` distinct words drawn by Zipf's law; fewer if the documents have fewer."""
        found: dict[str, None] = {}
        while len(found) < min(count, len(self.ranked)):
            found.update(
                dict.fromkeys(self._random.choices(self.ranked, cum_weights=self._weights))
            )
        return list(found)


def unique_word(number: int) -> str:
    """Return a word that no document has, different for each number.

    >>> unique_word(0), unique_word(27)
    ('zqxqaaaa', 'zqxqaabb')
    """
    letters = [chr(97 + number // 26**place % 26) for place in (3, 2, 1, 0)]
    return "zqxq" + "".join(letters)


class DocumentArrival(NamedTuple):
    """Arrival of a document; only this document contains `word`."""

    due_s: float
    id: str
    text: str
    word: str


class QueryArrival(NamedTuple):
    """Arrival of a query."""

    due_s: float
    query: DrawnQuery


class LoadParameters(Struct, frozen=True):
    """Parameters of a load."""

    documents: int
    """Number of initial documents."""
    rate: float
    """Documents per second."""
    searches: float
    """Queries per second."""
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
        return self.documents + len(self._due(self.rate, 0))

    def load(self, documents: Documents) -> Load:
        """Return the load: the first `self.documents` of `documents` are there initially, and the
        following ones arrive.

        Precondition: at least `documents_needed` documents.
        """
        queries = Queries(documents, self.seed)
        arriving = []
        for number, due in enumerate(self._due(self.rate, 0)):
            id, text = documents[self.documents + number]
            word = unique_word(number)
            arriving.append(DocumentArrival(due, id, f"{text} {word}", word))
        asked = [QueryArrival(due, queries.draw()) for due in self._due(self.searches, 1)]
        return Load(documents[: self.documents], arriving, asked, self.warmup_s)

    def _due(self, rate: float, stream: int) -> list[float]:
        """Return the due times of a Poisson process; `stream`: which of two independent ones."""
        if not rate:
            return []
        seconds = self.warmup_s + self.seconds
        # More than needed; the duration cuts them.
        found = poisson_schedule(round(2 * rate * seconds) + 100, rate, 2 * self.seed + stream)
        return [due for due in found if due < seconds]


class Load(Struct, frozen=True):
    """The load that every system gets. Requests due before `warmup_s` are not counted."""

    documents: Documents
    document_arrivals: Sequence[DocumentArrival]
    query_arrivals: Sequence[QueryArrival]
    warmup_s: float

    @property
    def ends_s(self) -> float:
        """Due time of the last request, in seconds since the start."""
        due = [each.due_s for each in self.document_arrivals] + [
            each.due_s for each in self.query_arrivals
        ]
        return max(due, default=0.0)

    def write(self, path: Path) -> None:
        """Write the load to a file, for the process that measures another system."""
        path.write_text(
            json.dumps([self.documents, self.document_arrivals, self.query_arrivals, self.warmup_s])
        )

    @classmethod
    def read(cls, path: Path) -> Load:
        """Return the load that `write` wrote."""
        documents, arriving, asked, warmup_s = json.loads(path.read_text())
        return cls(
            [(id, text) for id, text in documents],
            [DocumentArrival(*each) for each in arriving],
            [QueryArrival(due, DrawnQuery(*query)) for due, query in asked],
            warmup_s,
        )


class Measurements(Struct):
    """Measurements of a system; the module's docstring defines its latencies, in ms."""

    fill_per_s: float = 0.0
    """Initial documents, divided by the seconds until a query found the last one."""
    freshness_ms: list[float] = field(default_factory=list)
    acknowledged_ms: list[float] = field(default_factory=list)
    queries: dict[str, list[float]] = field(default_factory=dict)
    """Kind of query -> its latencies in ms."""
    send_delay_ms: list[float] = field(default_factory=list)
    """Delay of each request's start after its due time: the send delay."""
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
    def of_json(cls, text: str) -> Measurements:
        """Decode the result of `as_json`."""
        found: Mapping[str, object] = json.loads(text)
        observed = cls(**found)  # type: ignore[arg-type]
        observed.errors = Counter(observed.errors)
        return observed
