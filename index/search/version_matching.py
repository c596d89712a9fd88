"""Evaluation of stored queries on single versions, and selection of the versions to evaluate.

A version is evaluated as the flow emits it, without posting lists: the result is that of a shard
that holds only this version (`index.search.matching`).

A query matches only versions that contain one of its *anchors*: words or keywords, as few and rare
ones as possible. An `And` takes those of one part, an `Or` those of all parts. A query without
anchors, such as `-tea` or `te*`, is evaluated for every version. Anchors affect the cost of a
version, never which queries match it.
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

Frequency = Callable[[int, str], int]
"""(number of a text field, word) -> the number of documents that contain the word."""


class Anchor(NamedTuple):
    """A word of a text field, or a keyword of a value field."""

    is_keyword: bool
    field: int
    text: str


class VersionContents:
    """The contents of a version that queries read.

    `words`: the distinct words of each text field; `version`: returns the version itself, possibly
    read from disk; called only if a query needs positions or values.
    """

    def __init__(
        self, words: Sequence[Collection[str]], version: Callable[[], DocumentVersion | None]
    ) -> None:
        self.words = words
        self._read = version
        self._places: dict[tuple[int, str], PackedPositions] = {}

    @classmethod
    def of(cls, version: DocumentVersion) -> VersionContents:
        """Return the contents of a version that is not a deletion."""
        words = [{} if field is None else dict(field.words) for field in version.fields]
        return cls(words, lambda: version)

    @cached_property
    def _version(self) -> DocumentVersion:
        version = self._read()
        assert version is not None, "its words are known"
        return version

    @cached_property
    def _positions(self) -> list[Mapping[str, Sequence[int]]]:
        return [{} if field is None else dict(field.words) for field in self._version.fields]

    def places(self, field: int, words: Iterable[str]) -> Mapping[str, PackedPositions]:
        """Return the positions of words of a text as arrays. Precondition: the text has them."""
        for word in words:
            if (field, word) not in self._places:
                self._places[field, word] = np.array(self._positions[field][word], np.int64)
        return {word: self._places[field, word] for word in words}

    def value(self, field: int) -> Value | None:
        """Return the number, date or keywords of a field."""
        return self._version.values[field]

    def keywords(self, field: int) -> tuple[str, ...]:
        """Return the keywords of a field."""
        value = self.value(field)
        return value if isinstance(value, tuple) else ()


def matches(part: Node, contents: VersionContents) -> bool:
    """Return whether a query or subquery matches a version."""
    match part:
        case Term():
            return part.word in contents.words[part.field]
        case And():
            return all(matches(each, contents) for each in part.parts)
        case Or():
            return any(matches(each, contents) for each in part.parts)
        case Phrase():
            if not all(word in contents.words[part.field] for word in part.words):
                return False
            return len(starts_in_text(part.words, contents.places(part.field, part.words))) > 0
        case Not():
            return not matches(part.part, contents)
        case Prefix():
            return any(word.startswith(part.prefix) for word in contents.words[part.field])
        case Fuzzy():
            return any(is_near(part.word, word) for word in contents.words[part.field])
        case Exists():
            return bool(contents.words[part.field])
        case Keyword():
            return part.keyword in contents.keywords(part.field)
        case KeywordPrefix():
            return any(word.startswith(part.prefix) for word in contents.keywords(part.field))
        case Range():
            value = contents.value(part.field)
            return isinstance(value, float | int) and part.low <= value <= part.high
        case MatchAll():
            return True
    assert_never(part)


def anchors_of(part: Node, frequency: Frequency) -> tuple[Anchor, ...] | None:
    """Return the anchors of a query; None if it has none. `frequency` decides which words are
    rare."""

    def rank(anchors: tuple[Anchor, ...]) -> tuple[bool, int]:
        words = [each for each in anchors if not each.is_keyword]
        # Keywords come last: those of a replaced version have to be read from disk.
        return len(words) < len(anchors), sum(frequency(each.field, each.text) for each in words)

    match part:
        case Term():
            return (Anchor(False, part.field, part.word),)
        case Phrase():
            return min(((Anchor(False, part.field, word),) for word in part.words), key=rank)
        case Keyword():
            return (Anchor(True, part.field, part.keyword),)
        case And():
            found = [anchors_of(each, frequency) for each in part.parts]
            there = [anchors for anchors in found if anchors is not None]
            return min(there, key=rank, default=None)
        case Or():
            merged: dict[Anchor, None] = {}
            for each in part.parts:
                anchors = anchors_of(each, frequency)
                if anchors is None:
                    return None
                merged |= dict.fromkeys(anchors)
            return tuple(merged)
        case _:
            return None
