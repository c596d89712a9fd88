"""Anchors: which watches have to be looked at for a version.

Whatever a query finds has one of some texts: `cat dog` only finds what has `dog`. Such texts are
its anchors, as few and rare ones as can be: of several parts that all have to match it takes the
anchors of one, of parts of which any may match those of all. A watch is looked at for versions that
have an anchor of it, and there alone. A query that only says what must not be there, or a range,
has none: it is looked at for every version.

Which anchors a query has says what a version costs, never which watches it matches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from sys import maxsize
from typing import Generic, NamedTuple, TypeVar, assert_never

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
from driftline.index.watches.evaluating import Contents, pair

Frequency = Callable[[int, str], int]
"""(number of a text field, word) -> in how many documents the word is."""

PAIR_RARER = 16
"""About so many times rarer than its words is a pair of them."""

LETTERS_MAX = 32
"""Of a near word that is anchored: longer ones would have too many anchors."""


class Kind(IntEnum):
    """What of a version an anchor is; that with fewer versions, as a rule, comes first."""

    WORD = 0
    PAIR = 1
    """A word and the next one."""
    KEYWORD = 2
    NEAR = 3
    """A word, or one of which a letter was left out."""
    BEGINNING = 4
    """Of a word."""
    KEYWORD_BEGINNING = 5


class Anchor(NamedTuple):
    """`field`: its number, among those of texts or of values."""

    kind: Kind
    field: int
    text: str


class Cover(NamedTuple):
    """Anchors, of which whatever a query finds has one; `exact`: and nothing else has one."""

    anchors: tuple[Anchor, ...]
    exact: bool


def cover(part: Node, frequency: Frequency) -> Cover | None:
    """The anchors of a query; None: it has none. `frequency`: by it they are chosen."""
    match part:
        case Term():
            return _one(Kind.WORD, part.field, part.word)
        case Phrase():
            return min(_in_phrase(part), key=lambda found: _cost(found, frequency))
        case Prefix():
            return _one(Kind.BEGINNING, part.field, part.prefix)
        case Fuzzy():
            if len(part.word) > LETTERS_MAX:
                return None
            return Cover(
                tuple(Anchor(Kind.NEAR, part.field, text) for text in _shortened(part.word)), False
            )
        case Exists():
            return _one(Kind.BEGINNING, part.field, "")
        case Keyword():
            return _one(Kind.KEYWORD, part.field, part.keyword)
        case KeywordPrefix():
            return _one(Kind.KEYWORD_BEGINNING, part.field, part.prefix)
        case And():
            found = [found for each in part.parts if (found := cover(each, frequency)) is not None]
            best = min(found, key=lambda each: _cost(each, frequency), default=None)
            return best and best._replace(exact=False)
        case Or():
            covers = [cover(each, frequency) for each in part.parts]
            all_ = [found for found in covers if found is not None]
            if len(all_) < len(covers):
                return None
            anchors = dict.fromkeys(anchor for found in all_ for anchor in found.anchors)
            return Cover(tuple(anchors), all(found.exact for found in all_))
        case MatchAll() | Range() | Not():
            return None
    assert_never(part)


def _one(kind: Kind, field: int, text: str, exact: bool = True) -> Cover:
    return Cover((Anchor(kind, field, text),), exact)


def _in_phrase(phrase: Phrase) -> Iterator[Cover]:
    """All that has the phrase has each of these."""
    words = phrase.words
    if phrase.slop:
        for word in words:
            yield _one(Kind.WORD, phrase.field, word, exact=False)
    else:
        for two in pairwise(words):
            yield _one(Kind.PAIR, phrase.field, pair(*two), exact=len(words) == 2)


def _cost(found: Cover, frequency: Frequency) -> tuple[int, int, int]:
    """Smaller where fewer versions have an anchor, as far as one knows: long texts are rarer."""
    rank, often, shortest = 0, 0, maxsize
    for kind, field, text in found.anchors:
        words = text.split(" ") if kind is Kind.PAIR else [text]
        shortest = min(shortest, max(map(len, words)))
        if kind in (Kind.WORD, Kind.PAIR):
            rarest = min(frequency(field, word) for word in words)
            often += rarest if kind is Kind.WORD else rarest // PAIR_RARER
        else:
            rank = max(rank, kind)
    return rank, often, -shortest


def _shortened(word: str) -> Iterator[str]:
    """A word, and it without each of its letters, each text once.

    Two words with a distance of at most 1 have one of them in common, whatever the letter is.
    """
    yield word
    yield from dict.fromkeys(word[:at] + word[at + 1 :] for at in range(len(word)))


W = TypeVar("W")


class _Table(Generic[W]):
    """The watches of the anchors of one kind in one field."""

    def __init__(self) -> None:
        self.certain: dict[str, list[W]] = {}
        """Those whose anchors are exact."""
        self.possible: dict[str, list[W]] = {}
        self._lengths: Counter[int] = Counter()
        """How often a text of a watch has so many letters."""

    def __bool__(self) -> bool:
        return bool(self.certain or self.possible)

    def add(self, exact: bool, text: str, watch: W) -> None:
        (self.certain if exact else self.possible).setdefault(text, []).append(watch)
        self._lengths[len(text)] += 1

    def remove(self, exact: bool, text: str, watch: W) -> None:
        table = self.certain if exact else self.possible
        table[text].remove(watch)
        if not table[text]:
            del table[text]
        self._lengths[len(text)] -= 1
        if not self._lengths[len(text)]:
            del self._lengths[len(text)]

    def beginnings(self, texts: Iterable[str]) -> Iterable[str]:
        """The beginnings of texts, as long as those that are watched; each once."""
        lengths = sorted(self._lengths)
        return dict.fromkeys(
            text[:length] for text in texts for length in lengths if length <= len(text)
        )


class Found(NamedTuple, Generic[W]):
    """The watches of a version; each is in one of them at most."""

    certain: dict[W, None]
    """They match."""
    possible: dict[W, None]
    """They may match."""


class Anchors(Generic[W]):
    """The watches of one collection by their anchors. Invariant: `find` finds all that match."""

    def __init__(self) -> None:
        self._tables: dict[tuple[Kind, int], _Table[W]] = {}
        """(kind, field) -> its watches."""
        self.without: dict[W, None] = {}
        """Watches without anchors."""

    def __bool__(self) -> bool:
        return bool(self._tables or self.without)

    def add(self, found: Cover | None, watch: W) -> None:
        """Add a watch, which is not there yet."""
        if found is None:
            self.without[watch] = None
            return
        for kind, field, text in found.anchors:
            table = self._tables.get((kind, field))
            if table is None:
                table = self._tables[kind, field] = _Table()
            table.add(found.exact, text, watch)

    def remove(self, found: Cover | None, watch: W) -> None:
        """Remove a watch that was added with this cover."""
        if found is None:
            del self.without[watch]
            return
        for kind, field, text in found.anchors:
            table = self._tables[kind, field]
            table.remove(found.exact, text, watch)
            if not table:
                del self._tables[kind, field]

    def find(self, words: Sequence[Iterable[str]], contents: Callable[[], Contents]) -> Found[W]:
        """The watches that may match a version.

        `words`: of each text field, each once; `contents`: gives all of the version; it is not
        called if the words are enough.
        """
        found: Found[W] = Found({}, dict(self.without))
        for (kind, field), table in self._tables.items():
            match kind:
                case Kind.WORD:
                    texts = words[field]
                case Kind.PAIR:
                    texts = contents().pairs(field)
                case Kind.KEYWORD:
                    texts = contents().keywords(field)
                case Kind.NEAR:
                    texts = [shorter for word in words[field] for shorter in _shortened(word)]
                case Kind.BEGINNING:
                    texts = table.beginnings(words[field])
                case Kind.KEYWORD_BEGINNING:
                    texts = table.beginnings(contents().keywords(field))
            for into, by_text in zip(found, (table.certain, table.possible), strict=True):
                if by_text:
                    for watches in filter(None, map(by_text.get, texts)):
                        into.update(dict.fromkeys(watches))
        return found
