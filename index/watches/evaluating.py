"""Whether a query finds one version: the same answer as that of a shard which has this one only.

Here a version is what the flow puts out: no posting lists are made of it (`index.search.matching`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

import numpy as np

from driftline.index.documents.versions import Version
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
from driftline.index.search.edits import is_near
from driftline.index.search.phrases import Places, is_in_text


class Contents:
    """What queries look at of a version that is no deletion."""

    __slots__ = ("_at", "_places", "values", "words")

    def __init__(self, version: Version) -> None:
        self.words = tuple({} if field is None else dict(field.words) for field in version.fields)
        """Per text field: each word with its positions."""
        self.values = version.values
        self._at: dict[int, dict[int, str]] = {}
        self._places: dict[tuple[int, str], Places] = {}

    def keywords(self, field: int) -> tuple[str, ...]:
        """The keywords that a field has."""
        value = self.values[field]
        return value if isinstance(value, tuple) else ()

    def at(self, field: int) -> Mapping[int, str]:
        """The words of a text by their positions."""
        words = self._at.get(field)
        if words is None:
            words = {at: word for word, found in self.words[field].items() for at in found}
            self._at[field] = words
        return words

    def places(self, field: int, words: Iterable[str]) -> Mapping[str, Places]:
        """The positions of some words in a text, of those that it has, as arrays."""
        there, known = self.words[field], self._places
        found = {}
        for word in words:
            if word in there:
                places = known.get((field, word))
                if places is None:
                    places = known[field, word] = np.array(there[word], np.int64)
                found[word] = places
        return found

    def pairs(self, field: int) -> Iterable[str]:
        """Each word of a text with the next one, each pair once."""
        words = self.at(field)
        both = (pair(word, words[at + 1]) for at, word in words.items() if at + 1 in words)
        return dict.fromkeys(both)


def pair(word: str, after: str) -> str:
    """Two words, one after the other: no word has a space."""
    return f"{word} {after}"


def matches(part: Node, contents: Contents) -> bool:
    """Whether a query, or a part of one, finds a version."""
    match part:
        case Term():
            return part.word in contents.words[part.field]
        case And():
            return all(matches(each, contents) for each in part.parts)
        case Or():
            return any(matches(each, contents) for each in part.parts)
        case Phrase():
            return is_in_text(part.words, part.slop, contents.places(part.field, part.words))
        case Not():
            return not matches(part.part, contents)
        case Prefix():
            return _begins(contents.words[part.field], part.prefix)
        case Fuzzy():
            return any(is_near(part.word, word) for word in contents.words[part.field])
        case Exists():
            return bool(contents.words[part.field])
        case Keyword():
            return part.keyword in contents.keywords(part.field)
        case KeywordPrefix():
            return _begins(contents.keywords(part.field), part.prefix)
        case Range():
            value = contents.values[part.field]
            return isinstance(value, float | int) and part.low <= value <= part.high
        case MatchAll():
            return True
    assert_never(part)


def _begins(texts: Iterable[str], prefix: str) -> bool:
    return any(text.startswith(prefix) for text in texts)
