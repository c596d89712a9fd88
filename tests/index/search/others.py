"""Queries as trees of their own, BM25 by brute force, and the same documents in SQLite's FTS5.

This shares nothing with the index but the words that its analyser finds: not even the trees of
queries, which the index reads from their texts. Plain lists, integers and floats.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log1p
from random import Random

FIELDS = "title", "text"

Texts = tuple[Sequence[str], Sequence[str]]
"""The words of title and text."""


@dataclass(frozen=True)
class Leaf:
    """A word, a phrase, or, with `prefix`, a beginning; without a field: in any of them."""

    words: tuple[str, ...]
    field: int | None = None
    prefix: bool = False


@dataclass(frozen=True)
class Both:
    """What matches both parts."""

    left: Tree
    right: Tree


@dataclass(frozen=True)
class Either:
    """What matches one of the parts."""

    left: Tree
    right: Tree


@dataclass(frozen=True)
class Minus:
    """What matches the left part, and not the right one."""

    left: Tree
    right: Tree


@dataclass(frozen=True)
class Others:
    """What does not match; FTS5 has no such form."""

    part: Tree


Tree = Leaf | Both | Either | Minus | Others


def drawn(chance: Random, texts: Sequence[Texts], levels: int = 2, others: bool = True) -> Tree:
    """A query of words of these documents; `others`: also of what only says what is not there."""

    def part() -> Tree:
        return drawn(chance, texts, levels - 1, others)

    match chance.choice("lllbem" if levels else "l"):
        case "b":
            return Both(part(), part())
        case "e":
            return Either(part(), part())
        case "m":
            return Others(part()) if others and chance.random() < 0.3 else Minus(part(), part())
    words = chance.choice(texts)[1]
    field, at = chance.choice((None, None, 0, 1)), chance.randrange(len(words) - 2)
    match chance.choice("wwpb"):
        case "p":
            return Leaf(tuple(words[at : at + chance.choice((2, 2, 3))]), field)
        case "b":
            return Leaf((words[at][: chance.randint(3, 5)],), field, prefix=True)
    return Leaf((words[at],), field)


def ours(tree: Tree) -> str:
    """A query in the language of the index."""
    match tree:
        case Leaf(words, field, prefix):
            text = f'"{" ".join(words)}"' if len(words) > 1 else words[0] + "*" * prefix
            return text if field is None else f"{FIELDS[field]}:{text}"
        case Both(left, right):
            return f"({ours(left)}) ({ours(right)})"
        case Either(left, right):
            return f"({ours(left)}) OR ({ours(right)})"
        case Minus(left, right):
            return f"({ours(left)}) -({ours(right)})"
        case Others(part):
            return f"-({ours(part)})"


def of_sqlite(tree: Tree) -> str:
    """The same query in the language of FTS5."""
    match tree:
        case Leaf(words, field, prefix):
            text = f'"{" ".join(words)}"' + " *" * prefix
            return text if field is None else f"{FIELDS[field]} : {text}"
        case Both(left, right):
            return f"({of_sqlite(left)}) AND ({of_sqlite(right)})"
        case Either(left, right):
            return f"({of_sqlite(left)}) OR ({of_sqlite(right)})"
        case Minus(left, right):
            return f"({of_sqlite(left)}) NOT ({of_sqlite(right)})"
        case Others():
            raise ValueError("FTS5 has no such form")


class BruteForce:
    """The documents as of a T: id -> (label time, words)."""

    def __init__(
        self, documents: Mapping[str, tuple[int, Texts]], weights: Sequence[float]
    ) -> None:
        self._documents = documents
        self._weights = weights
        self._counts = cache(self._count)
        self._sizes = [self._size(field) for field in range(len(FIELDS))]

    def ranked(self, tree: Tree) -> list[tuple[str, float, int]]:
        """(id, score, label time) of all that match: by score, the oldest of equals first."""
        leaves = dict.fromkeys(_scoring(tree))
        found = []
        for id in self._matching(tree):
            (time, texts), score = self._documents[id], 0.0
            for leaf in leaves:
                score += self._score(leaf, id, texts)
            found.append((id, score, time))
        return sorted(found, key=lambda hit: (-hit[1], hit[2]))

    def _matching(self, tree: Tree) -> set[str]:
        match tree:
            case Leaf():
                return {id for leaf in _in_fields(tree) for id in self._counts(leaf)}
            case Both(left, right):
                return self._matching(left) & self._matching(right)
            case Either(left, right):
                return self._matching(left) | self._matching(right)
            case Minus(left, right):
                return self._matching(left) - self._matching(right)
            case Others(part):
                return set(self._documents) - self._matching(part)

    def _count(self, leaf: Leaf) -> dict[str, int]:
        """How often a leaf with a field is in each document that has it."""
        assert leaf.field is not None
        counts = {id: _often(leaf, texts[leaf.field]) for id, (_, texts) in self._documents.items()}
        return {id: count for id, count in counts.items() if count}

    def _score(self, leaf: Leaf, id: str, texts: Texts) -> float:
        often = self._counts(leaf).get(id, 0)
        if not often:
            return 0.0
        assert leaf.field is not None
        documents, length = self._sizes[leaf.field]
        rarity = 1.0 if leaf.prefix else 0.0
        for word in () if leaf.prefix else leaf.words:
            rarity += self._rarity(word, leaf.field, documents)
        weight = self._weights[leaf.field] * rarity
        relative = len(texts[leaf.field]) * documents / length
        return weight * (often * (1.2 + 1)) / (often + 1.2 * (1 - 0.75 + 0.75 * relative))

    def _rarity(self, word: str, field: int, documents: int) -> float:
        having = len(self._counts(Leaf((word,), field)))
        return log1p((documents - having + 0.5) / (having + 0.5))

    def _size(self, field: int) -> tuple[int, int]:
        """How many documents have the field, and how many words it has in all of them."""
        lengths = [len(texts[field]) for _, texts in self._documents.values()]
        return sum(length > 0 for length in lengths), sum(lengths)


def _in_fields(leaf: Leaf) -> list[Leaf]:
    fields = range(len(FIELDS)) if leaf.field is None else [leaf.field]
    return [Leaf(leaf.words, field, leaf.prefix) for field in fields]


def _scoring(tree: Tree) -> Iterator[Leaf]:
    """The leaves that add to a score, in the order in which they are written."""
    match tree:
        case Leaf():
            yield from _in_fields(tree)
        case Both(left, right) | Either(left, right):
            yield from _scoring(left)
            yield from _scoring(right)
        case Minus(left, _):
            yield from _scoring(left)


def _often(leaf: Leaf, text: Sequence[str]) -> int:
    words = leaf.words
    if leaf.prefix:
        return sum(word.startswith(words[0]) for word in text)
    if len(words) == 1:
        return text.count(words[0])
    return sum(tuple(text[at : at + len(words)]) == words for at in range(len(text)))


class Sqlite:
    """Documents in a table of FTS5, whose words are runs of letters and digits of ASCII."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE d USING fts5(id UNINDEXED, title, text, tokenize = 'ascii')"
        )

    def write(self, id: str, texts: tuple[str, str] | None) -> None:
        """A document is put in place of what is there; None: it is deleted."""
        self._database.execute("DELETE FROM d WHERE id = ?", (id,))
        if texts is not None:
            self._database.execute("INSERT INTO d VALUES (?, ?, ?)", (id, *texts))

    def found(self, tree: Tree) -> set[str]:
        """The ids of what matches."""
        matching = "SELECT id FROM d WHERE d MATCH ?"
        return {id for (id,) in self._database.execute(matching, (of_sqlite(tree),))}


def missing() -> str:
    """Why FTS5 cannot be used here; "" if it can."""
    try:
        Sqlite()
    except sqlite3.OperationalError as error:
        return f"the SQLite of this Python has no FTS5: {error}"
    return ""
