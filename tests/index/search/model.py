"""A sequential model of an index: the plainest program that gives the answers of a search.

It keeps the list of all writes. As of a time it makes the documents anew, and tries each query on
each document, by the words alone. It shares the tree of a query with the index, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

from driftline.index.query.tree import (
    And,
    Exists,
    Fuzzy,
    Keyword,
    KeywordPrefix,
    MatchAll,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Range,
    Scoring,
    Term,
)


@dataclass(frozen=True)
class Document:
    """The words of each text field, then the fields with values: keywords, a number, a date."""

    texts: tuple[tuple[str, ...], ...]
    keywords: tuple[str, ...] = ()
    number: float | None = None
    date: int | None = None
    numbered: tuple[int, int] = (1, 2)
    """The numbers of the fields with the number and the date."""


@dataclass(frozen=True)
class Write:
    """`document`: None: it is deleted."""

    time: int
    id: str
    document: Document | None


Hit = tuple[str, float, int]
"""(document, score, time of its version)"""


class Model:
    """All writes, and the weight of each text field."""

    def __init__(self, weights: list[float]) -> None:
        self.writes: list[Write] = []
        self.weights = weights

    def documents(self, time: int) -> dict[str, tuple[int, Document]]:
        """The documents that there are as of a time, with the times of their versions."""
        found: dict[str, tuple[int, Document]] = {}
        for write in self.writes:
            if write.time < time:
                found.pop(write.id, None)
                if write.document is not None:
                    found[write.id] = write.time, write.document
        return found

    def search(self, query: Query, time: int) -> list[Hit]:
        """All that a query finds, in order."""
        everything = self.everything(time)
        hits = []
        for id, written, document in self.found(query, time):
            score = 0.0
            for leaf in query.scoring:
                score += self.score(leaf, document, everything)
            hits.append((id, score, written))
        return sorted(hits, key=lambda hit: (-hit[1], hit[2]))

    def found(self, query: Query, time: int) -> list[tuple[str, int, Document]]:
        """(document, time of its version, its contents) of all that a query finds."""
        documents = self.documents(time).items()
        return [
            (id, written, document)
            for id, (written, document) in documents
            if matches(query.root, document)
        ]

    def everything(self, time: int) -> list[Document]:
        """All documents that there are as of a time."""
        return [document for _, document in self.documents(time).values()]

    def score(self, leaf: Scoring, document: Document, everything: list[Document]) -> float:
        """The score of a leaf: BM25, in the order of operations that is promised."""
        text = document.texts[leaf.field]
        often = frequency(leaf, text)
        if not often:
            return 0.0
        texts = [each.texts[leaf.field] for each in everything if each.texts[leaf.field]]
        rare = 0.0
        for word in words_of(leaf):
            having = sum(word in each for each in texts)
            rare += log1p((len(texts) - having + 0.5) / (having + 0.5))
        weight = self.weights[leaf.field] * (rare if words_of(leaf) else 1.0)
        relative = float(len(text)) * len(texts) / sum(map(len, texts))
        return weight * (often * (1.2 + 1)) / (often + 1.2 * (1 - 0.75 + 0.75 * relative))


def words_of(leaf: Scoring) -> tuple[str, ...]:
    """The words whose rarity counts."""
    match leaf:
        case Term():
            return (leaf.word,)
        case Phrase():
            return leaf.words
    return ()


def matches(part: Node, document: Document) -> bool:
    match part:
        case MatchAll():
            return True
        case And():
            return all(matches(each, document) for each in part.parts)
        case Or():
            return any(matches(each, document) for each in part.parts)
        case Not():
            return not matches(part.part, document)
        case Exists():
            return bool(document.texts[part.field])
        case Keyword():
            return part.keyword in document.keywords
        case KeywordPrefix():
            return any(word.startswith(part.prefix) for word in document.keywords)
        case Range():
            values = zip(document.numbered, (document.number, document.date), strict=True)
            value = dict(values)[part.field]
            return value is not None and part.low <= value <= part.high
        case Term() | Phrase() | Prefix() | Fuzzy():
            return frequency(part, document.texts[part.field]) > 0


def frequency(leaf: Scoring, text: tuple[str, ...]) -> int:
    """How often a leaf is in a text."""
    match leaf:
        case Term():
            return text.count(leaf.word)
        case Phrase():
            return len(phrase_starts(text, leaf.words))
        case Prefix():
            return sum(word.startswith(leaf.prefix) for word in text)
        case Fuzzy():
            return sum(distance(leaf.word, word) <= 1 for word in text)


def phrase_starts(text: tuple[str, ...], words: tuple[str, ...]) -> list[int]:
    """The positions at which a phrase begins."""
    return [i for i in range(len(text)) if text[i : i + len(words)] == words]


def distance(word: str, other: str) -> int:
    """The Levenshtein distance, by the textbook."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        before, row = row, [i]
        for j, its in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != its)))
    return row[-1]
