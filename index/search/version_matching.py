"""Evaluation of stored queries on single versions, and selection of the queries to evaluate.

A query is evaluated on the words and values of a version, without posting lists. The result equals
that of `index.search.matching` in a shard with only this version.

The *anchors* of a query are words or keywords, preferably few and rare, such that every version
that matches the query contains at least one of them. An `And` has the anchors of one part, an `Or`
the anchors of all parts. A query without anchors, such as `-tea` or `te*`, is evaluated for every
version. Anchors affect how many queries are evaluated for a version, never which of them match it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, assert_never

import numpy as np

from driftline.index.documents.values import Value
from driftline.index.documents.versions import DocumentVersion
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
    Range,
    Term,
)
from driftline.index.search.fuzzy import is_near
from driftline.index.search.phrases import PackedPositions, starts_in_text

DocumentFrequency = Callable[[int, str], int]
"""(number of a text field, word) -> the number of documents that contain the word."""


class Anchor(NamedTuple):
    """A word of a text field, or a keyword of a value field; `field`: number of this field."""

    is_keyword: bool
    field: int
    text: str


class VersionContents:
    """Contents of a version for evaluation; positions and values are loaded on first use.

    `words`: the distinct words of each text field; `read_version`: function that returns the
    version, possibly from disk; called at most once, and only if a query needs positions or values.
    """

    def __init__(
        self, words: Sequence[Collection[str]], read_version: Callable[[], DocumentVersion | None]
    ) -> None:
        self.words = words
        self._read = read_version
        self._position_arrays: dict[tuple[int, str], PackedPositions] = {}

    @classmethod
    def of(cls, version: DocumentVersion) -> VersionContents:
        """Return the contents of a version that is not a deletion."""
        words = [{} if field is None else dict(field.words) for field in version.fields]
        return cls(words, lambda: version)

    @cached_property
    def _version(self) -> DocumentVersion:
        version = self._read()
        assert version is not None, "the version exists, since its words are known"
        return version

    @cached_property
    def _positions(self) -> list[Mapping[str, Sequence[int]]]:
        return [{} if field is None else dict(field.words) for field in self._version.fields]

    def position_arrays(self, field: int, words: Iterable[str]) -> Mapping[str, PackedPositions]:
        """Return the positions of words in a text field. Precondition: the text has all words."""
        for word in words:
            if (field, word) not in self._position_arrays:
                self._position_arrays[field, word] = np.array(
                    self._positions[field][word], np.int64
                )
        return {word: self._position_arrays[field, word] for word in words}

    def value(self, field: int) -> Value | None:
        """Return the number, date or keywords of a field; None if it has no value."""
        return self._version.values[field]

    def keywords(self, field: int) -> tuple[str, ...]:
        """Return the keywords of a field; () if it has none."""
        value = self.value(field)
        return value if isinstance(value, tuple) else ()


def matches(node: Node, contents: VersionContents) -> bool:
    """Return whether a query or subquery matches a version."""
    match node:
        case Term():
            return node.word in contents.words[node.field]
        case And():
            return all(matches(each, contents) for each in node.parts)
        case Or():
            return any(matches(each, contents) for each in node.parts)
        case Phrase():
            if not all(word in contents.words[node.field] for word in node.words):
                return False
            return (
                len(starts_in_text(node.words, contents.position_arrays(node.field, node.words)))
                > 0
            )
        case Not():
            return not matches(node.part, contents)
        case Prefix():
            return any(word.startswith(node.prefix) for word in contents.words[node.field])
        case Fuzzy():
            return any(is_near(node.word, word) for word in contents.words[node.field])
        case Exists():
            return bool(contents.words[node.field])
        case Keyword():
            return node.keyword in contents.keywords(node.field)
        case KeywordPrefix():
            return any(word.startswith(node.prefix) for word in contents.keywords(node.field))
        case Range():
            value = contents.value(node.field)
            return isinstance(value, float | int) and node.low <= value <= node.high
        case MatchAll():
            return True
    assert_never(node)


def anchors_of(node: Node, frequency: DocumentFrequency) -> tuple[Anchor, ...] | None:
    """Return the anchors of a query; None if it must be evaluated for every version.

    `frequency`: returns the document frequency of a word, to choose between possible anchors.
    """

    def rank(anchors: tuple[Anchor, ...]) -> tuple[bool, int]:
        words = [each for each in anchors if not each.is_keyword]
        # Prefer words: the keywords of a replaced version have to be read from disk.
        return len(words) < len(anchors), sum(frequency(each.field, each.text) for each in words)

    match node:
        case Term():
            return (Anchor(False, node.field, node.word),)
        case Phrase():
            return min(((Anchor(False, node.field, word),) for word in node.words), key=rank)
        case Keyword():
            return (Anchor(True, node.field, node.keyword),)
        case And():
            per_part = [anchors_of(each, frequency) for each in node.parts]
            anchored = [anchors for anchors in per_part if anchors is not None]
            return min(anchored, key=rank, default=None)
        case Or():
            merged: dict[Anchor, None] = {}
            for each in node.parts:
                anchors = anchors_of(each, frequency)
                if anchors is None:
                    return None
                merged |= dict.fromkeys(anchors)
            return tuple(merged)
        case _:
            return None
