"""Sequential model of an index: the simplest program that answers searches.

The model keeps a list of all writes. For each query it rebuilds the documents as of a time and
matches the query against the words of each document. It shares only query trees with the index.
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
class ModelDocument:
    """Document: the words of each text field, and values: keywords, a number, a date."""

    texts: tuple[tuple[str, ...], ...]
    keywords: tuple[str, ...] = ()
    number: float | None = None
    date: int | None = None
    numbered: tuple[int, int] = (1, 2)
    """Numbers of the value fields for the number and the date."""


@dataclass(frozen=True)
class ModelWrite:
    """Write of a document; `document` is None for a deletion."""

    time: int
    id: str
    document: ModelDocument | None


Hit = tuple[str, float, int]
"""(document id, score, time of the version)"""


class Model:
    """List of all writes, with the weights of the text fields."""

    def __init__(self, weights: list[float]) -> None:
        self.writes: list[ModelWrite] = []
        self.weights = weights

    def documents(self, time: int) -> dict[str, tuple[int, ModelDocument]]:
        """Return the documents as of a time: id -> (time of the version, document)."""
        found: dict[str, tuple[int, ModelDocument]] = {}
        for write in self.writes:
            if write.time < time:
                found.pop(write.id, None)
                if write.document is not None:
                    found[write.id] = write.time, write.document
        return found

    def search(self, query: Query, time: int) -> list[Hit]:
        """Return all hits of a query in order."""
        everything = self.everything(time)
        hits = []
        for id, written, document in self.found(query, time):
            score = 0.0
            for leaf in query.scoring:
                score += self.score(leaf, document, everything)
            hits.append((id, score, written))
        return sorted(hits, key=lambda hit: (-hit[1], hit[2]))

    def found(self, query: Query, time: int) -> list[tuple[str, int, ModelDocument]]:
        """Return (id, time of the version, document) of all hits of a query."""
        documents = self.documents(time).items()
        return [
            (id, written, document)
            for id, (written, document) in documents
            if matches(query.root, document)
        ]

    def everything(self, time: int) -> list[ModelDocument]:
        """Return all documents as of a time."""
        return [document for _, document in self.documents(time).values()]

    def score(
        self, leaf: Scoring, document: ModelDocument, everything: list[ModelDocument]
    ) -> float:
        """Return the BM25 score of a leaf, with the documented order of operations."""
        text = document.texts[leaf.field]
        occurrences = frequency(leaf, text)
        if not occurrences:
            return 0.0
        texts = [each.texts[leaf.field] for each in everything if each.texts[leaf.field]]
        idf = 0.0
        for word in words_of(leaf):
            documents_with_word = sum(word in each for each in texts)
            idf += log1p((len(texts) - documents_with_word + 0.5) / (documents_with_word + 0.5))
        weight = self.weights[leaf.field] * (idf if words_of(leaf) else 1.0)
        relative = float(len(text)) * len(texts) / sum(map(len, texts))
        return (
            weight * (occurrences * (1.2 + 1)) / (occurrences + 1.2 * (1 - 0.75 + 0.75 * relative))
        )


def words_of(leaf: Scoring) -> tuple[str, ...]:
    """Return the words of a leaf that contribute to the idf."""
    match leaf:
        case Term():
            return (leaf.word,)
        case Phrase():
            return leaf.words
    return ()


def matches(part: Node, document: ModelDocument) -> bool:
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
    """Return how often a leaf occurs in a text."""
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
    """Return the positions at which a phrase starts."""
    return [i for i in range(len(text)) if text[i : i + len(words)] == words]


def distance(word: str, other: str) -> int:
    """Return the Levenshtein distance, computed with the textbook algorithm."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        before, row = row, [i]
        for j, its in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != its)))
    return row[-1]
