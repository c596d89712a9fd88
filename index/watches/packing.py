"""What is kept of the query of a watch: its anchors and its tree, in few bytes.

A watch is seldom looked at, and there are many: so trees are made of the bytes when they are
needed. Reading the text of the query again would take much longer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import assert_never

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import pack, unpack
from driftline.index.query.bound import (
    AllOf,
    AnyOf,
    AnyWord,
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
from driftline.index.watches.anchors import Anchor, Cover, Kind

_KINDS = {kind.value: kind for kind in Kind}

CACHED = 1 << 15
"""Trees of watches that are looked at often: some 400 bytes each."""


def packed(found: Cover | None, root: Part) -> bytes:
    """The anchors and the tree of a query."""
    return pack((found, _encode(root)))


def cover_in(data: bytes) -> Cover | None:
    """The anchors in `packed`. Raises MalformedMessage."""
    match unpack(data):
        case (None, _):
            return None
        case (((*anchors,), bool(exact)), _):
            return Cover(tuple(map(_anchor, anchors)), exact)
    raise MalformedMessage("not the query of a watch")


@lru_cache(CACHED)
def tree_in(data: bytes) -> Part:
    """The tree in `packed`, without the names of fields. Raises MalformedMessage."""
    match unpack(data):
        case (_, found):
            return _decode(found)
    raise MalformedMessage("not the query of a watch")


def _anchor(found: object) -> Anchor:
    match found:
        case (int(kind), int(field), str(text)) if kind in _KINDS:
            return Anchor(_KINDS[kind], field, text)
    raise MalformedMessage("not the anchor of a watch")


def _encode(part: Part) -> tuple[object, ...]:
    match part:
        case Word():
            return "word", part.field, part.word
        case BoundPhrase():
            return "phrase", part.field, part.words, part.slop
        case WordsFrom():
            return "words from", part.field, part.prefix
        case Near():
            return "near", part.field, part.word
        case AnyWord():
            return "any word", part.field
        case Equals():
            return "equals", part.field, part.keyword
        case KeywordsFrom():
            return "keywords from", part.field, part.prefix
        case Between():
            return "between", part.field, part.low, part.high
        case Every():
            return ("every",)
        case Without():
            return "without", _encode(part.part)
        case AllOf():
            return "all", tuple(map(_encode, part.parts))
        case AnyOf():
            return "any", tuple(map(_encode, part.parts))
    assert_never(part)


def _decode(found: object) -> Part:
    match found:
        case ("word", int(field), str(word)):
            return Word(field, "", word)
        case ("phrase", int(field), (*words,), int(slop)):
            return BoundPhrase(field, "", tuple(map(str, words)), slop)
        case ("words from", int(field), str(prefix)):
            return WordsFrom(field, "", prefix)
        case ("near", int(field), str(word)):
            return Near(field, "", word)
        case ("any word", int(field)):
            return AnyWord(field, "")
        case ("equals", int(field), str(keyword)):
            return Equals(field, "", keyword)
        case ("keywords from", int(field), str(prefix)):
            return KeywordsFrom(field, "", prefix)
        case ("between", int(field), (int() | float()) as low, (int() | float()) as high):
            return Between(field, "", low, high)
        case ("every",):
            return Every()
        case ("without", part):
            return Without(_decode(part))
        case ("all", (*parts,)):
            return AllOf(tuple(map(_decode, parts)))
        case ("any", (*parts,)):
            return AnyOf(tuple(map(_decode, parts)))
    raise MalformedMessage("not the tree of a query")
