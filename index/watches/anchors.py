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
from typing import Generic, NamedTuple, TypeVar, assert_never

from driftline.index.documents.values import Value
from driftline.index.query.bound import (
    AllOf,
    AnyOf,
    Between,
    BoundPhrase,
    Equals,
    Every,
    KeywordsFrom,
    Near,
    Part,
    Without,
    Word,
    WordsFrom,
)
from driftline.index.watches.evaluating import keywords

Frequency = Callable[[int, str], int]
"""(number of a text field, word) -> in how many documents the word is."""

LETTERS_MAX = 32
"""Of a near word that is anchored: longer ones would have too many anchors."""


class Kind(IntEnum):
    """What of a version an anchor is; that with fewer versions, as a rule, comes first."""

    WORD = 0
    KEYWORD = 1
    NEAR = 2
    """A word, or one of which a letter was left out."""
    BEGINNING = 3
    """Of a word."""
    KEYWORD_BEGINNING = 4


_OF_TEXTS = (Kind.WORD, Kind.NEAR, Kind.BEGINNING)


class Anchor(NamedTuple):
    """`field`: its number, among those of texts or of values."""

    kind: Kind
    field: int
    text: str


class Cover(NamedTuple):
    """Anchors, of which whatever a query finds has one; `exact`: and nothing else has one."""

    anchors: tuple[Anchor, ...]
    exact: bool


def cover(part: Part, frequency: Frequency) -> Cover | None:
    """The anchors of a query; None: it has none. `frequency`: by it they are chosen."""
    match part:
        case Word():
            return _one(Kind.WORD, part.field, part.word)
        case BoundPhrase():
            words = (Cover((Anchor(Kind.WORD, part.field, word),), False) for word in part.words)
            return min(words, key=lambda found: _cost(found, frequency))
        case WordsFrom():
            return _one(Kind.BEGINNING, part.field, part.prefix)
        case Near():
            if len(part.word) > LETTERS_MAX:
                return None
            return Cover(
                tuple(Anchor(Kind.NEAR, part.field, text) for text in _shortened(part.word)), False
            )
        case Equals():
            return _one(Kind.KEYWORD, part.field, part.keyword)
        case KeywordsFrom():
            return _one(Kind.KEYWORD_BEGINNING, part.field, part.prefix)
        case AllOf():
            found = [found for each in part.parts if (found := cover(each, frequency)) is not None]
            best = min(found, key=lambda each: _cost(each, frequency), default=None)
            return best and best._replace(exact=False)
        case AnyOf():
            covers = [cover(each, frequency) for each in part.parts]
            all_ = [found for found in covers if found is not None]
            if len(all_) < len(covers):
                return None
            anchors = dict.fromkeys(anchor for found in all_ for anchor in found.anchors)
            return Cover(tuple(anchors), all(found.exact for found in all_))
        case Every() | Between() | Without():
            return None
    assert_never(part)


def _one(kind: Kind, field: int, text: str) -> Cover:
    return Cover((Anchor(kind, field, text),), True)


def _cost(found: Cover, frequency: Frequency) -> tuple[int, int, int]:
    """Smaller where fewer versions have an anchor, as far as one knows: long texts are rarer."""
    kind = max((anchor.kind for anchor in found.anchors), default=Kind.WORD)
    often = sum(
        frequency(anchor.field, anchor.text) for anchor in found.anchors if anchor.kind is Kind.WORD
    )
    return kind, often, -min((len(anchor.text) for anchor in found.anchors), default=0)


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
        self.watches: dict[str, list[W]] = {}
        self._lengths: Counter[int] = Counter()
        """Of the texts."""

    def add(self, text: str, watch: W) -> None:
        watches = self.watches.get(text)
        if watches is None:
            self.watches[text] = [watch]
            self._lengths[len(text)] += 1
        else:
            watches.append(watch)

    def remove(self, text: str, watch: W) -> None:
        watches = self.watches[text]
        watches.remove(watch)
        if not watches:
            del self.watches[text]
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
        self._tables: dict[tuple[bool, Kind, int], _Table[W]] = {}
        """(of watches whose anchors are exact, kind, field) -> its watches."""
        self.without: dict[W, None] = {}
        """Watches without anchors."""

    def add(self, found: Cover | None, watch: W) -> None:
        """Add a watch, which is not there yet."""
        if found is None:
            self.without[watch] = None
            return
        for kind, field, text in found.anchors:
            at = found.exact, kind, field
            table = self._tables.get(at)
            if table is None:
                table = self._tables[at] = _Table()
            table.add(text, watch)

    def remove(self, found: Cover | None, watch: W) -> None:
        """Remove a watch that was added with this cover."""
        if found is None:
            del self.without[watch]
            return
        for kind, field, text in found.anchors:
            table = self._tables[found.exact, kind, field]
            table.remove(text, watch)
            if not table.watches:
                del self._tables[found.exact, kind, field]

    def find(
        self, words: Sequence[Iterable[str]], values: Callable[[], Sequence[Value | None]]
    ) -> Found[W]:
        """The watches that may match a version.

        `words`: of each text field, each once; `values`: gives those of the other fields; it is not
        called if they do not matter.
        """
        found: Found[W] = Found({}, dict(self.without))
        for (exact, kind, field), table in self._tables.items():
            into = found.certain if exact else found.possible
            texts = words[field] if kind in _OF_TEXTS else keywords(values()[field])
            if kind is Kind.NEAR:
                texts = (shorter for text in texts for shorter in _shortened(text))
            elif kind in (Kind.BEGINNING, Kind.KEYWORD_BEGINNING):
                texts = table.beginnings(texts)
            get = table.watches.get
            for watches in map(get, texts):
                if watches is not None:
                    into.update(dict.fromkeys(watches))
        return found
