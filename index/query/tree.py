"""Query tree, with field numbers and analysed words. `str` formats a tree as a query.

    t:cat t:dog           And: both words
    t:cat OR t:dog        Or: at least one of them; And binds tighter
    -t:cat                Not
    *                     MatchAll
    t:cat                 Term
    t:"big cat"           Phrase: adjacent words
    t:cat*  t:cat~  t:*   Prefix, Fuzzy, Exists
    k:"tea"  k:te*        Keyword, KeywordPrefix
    k:*                   KeywordPrefix with an empty prefix: any keyword
    n:[1 TO *]            Range, of numbers or dates

A tree is canonical: an `And` or `Or` has at least two different parts, in the order written, and no
part of the same class; an `And` has no `MatchAll`. Text fields and value fields are numbered
separately, see `driftline.index.documents.schema`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import isinf

from msgspec import Struct

from driftline.index.documents.values import DATE_MAX, DATE_MIN, format_date


class MatchAll(Struct, frozen=True):
    """All documents."""

    def __str__(self) -> str:
        return "*"


class _OfField(Struct, frozen=True):
    """Base class of leaves for one field; `field`: its number; `name`: its name, for `str`."""

    field: int
    name: str


class Term(_OfField, frozen=True):
    """Documents that contain a word in a text field."""

    word: str

    def __str__(self) -> str:
        return f"{self.name}:{_format_word(self.word)}"


class Phrase(_OfField, frozen=True):
    """Documents that contain, in a text field, `words` (at least two) as adjacent words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{quoted(' '.join(self.words))}"


class Prefix(_OfField, frozen=True):
    """Documents that contain, in a text field, a word that starts with `prefix`."""

    prefix: str

    def __str__(self) -> str:
        return f"{self.name}:{_format_word(self.prefix)}*"


class Fuzzy(_OfField, frozen=True):
    """Documents that contain, in a text field, a word whose edit distance from `word` is <= 1."""

    word: str

    def __str__(self) -> str:
        return f"{self.name}:{_format_word(self.word)}~"


class Exists(_OfField, frozen=True):
    """Documents that have any word in a text field."""

    def __str__(self) -> str:
        return f"{self.name}:*"


class Keyword(_OfField, frozen=True):
    """Documents with a keyword in a keyword field."""

    keyword: str

    def __str__(self) -> str:
        return f"{self.name}:{quoted(self.keyword)}"


class KeywordPrefix(_OfField, frozen=True):
    """Documents that have, in a keyword field, a keyword that starts with `prefix`."""

    prefix: str

    def __str__(self) -> str:
        return f"{self.name}:{_format_word(self.prefix)}*"


class Range(_OfField, frozen=True):
    """Documents with low <= value <= high: floats for numbers, microseconds since 1970 for dates.

    An open end is `-inf` or `inf` for numbers, `DATE_MIN` or `DATE_MAX` for dates.
    """

    low: float | int
    high: float | int

    def __str__(self) -> str:
        return f"{self.name}:[{_end(self.low)} TO {_end(self.high)}]"


class Not(Struct, frozen=True):
    """Documents that do not match `part`."""

    part: Node

    def __str__(self) -> str:
        return f"-({self.part})" if isinstance(self.part, And | Or | Not) else f"-{self.part}"


class And(Struct, frozen=True):
    """Documents that match all parts."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


class Or(Struct, frozen=True):
    """Documents that match any part."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts))


Expanded = Prefix | Fuzzy
"""Leaves that expand to any number of words."""

Scoring = Term | Phrase | Expanded
"""Leaves that can add to a score: the leaves of text fields, except `Exists`."""

Leaf = MatchAll | Scoring | Exists | Keyword | KeywordPrefix | Range
Node = Leaf | Not | And | Or


class Query(Struct, frozen=True):
    """A query for one collection.

    `scoring`: the different leaves that add to the score of a matching document, in the order
    written; leaves below a `Not` are not among them.
    """

    root: Node
    scoring: tuple[Scoring, ...]

    def __str__(self) -> str:
        return str(self.root)


def query_of(root: Node) -> Query:
    """Return the query with this tree."""
    scoring = (leaf for leaf in leaves(root, negated=False) if isinstance(leaf, Scoring))
    return Query(root, tuple(dict.fromkeys(scoring)))


def leaves(node: Node, *, negated: bool = True) -> Iterator[Leaf]:
    """Yield the leaves of a tree, in the order written; `negated`: include those below a `Not`."""
    match node:
        case And() | Or():
            for part in node.parts:
                yield from leaves(part, negated=negated)
        case Not():
            if negated:
                yield from leaves(node.part)
        case _:
            yield node


def combine(kind: type[And] | type[Or], parts: Iterable[Node | None]) -> Node | None:
    """Combine the parts, except None, into one canonical node; return None if no part remains."""
    distinct: dict[Node, None] = {}
    for part in parts:
        if part is not None:
            distinct |= dict.fromkeys(part.parts if isinstance(part, kind) else (part,))
    if kind is And and len(distinct) > 1:
        distinct.pop(MatchAll(), None)
    return kind(tuple(distinct)) if len(distinct) > 1 else next(iter(distinct), None)


_SPECIAL = re.compile(r'[\s()"*~\\]|(?<=\w)(?:[\^?]|\|\||&&)(?=\w)')
"""Texts to escape anywhere in a word: syntax, and signs of other query languages."""
_SYNTAX_START = re.compile(r"[-+<>=\[{!/|&]|(?:AND|OR|NOT)\Z|[^\W\d][\w.-]*:")
"""Texts whose beginning is query syntax."""


def _format_word(text: str) -> str:
    """Format a text as a word of a query."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    return f"\\{escaped}" if _SYNTAX_START.match(text) else escaped


def quoted(text: str) -> str:
    """Format a text as a phrase of a query."""
    return '"' + re.sub(r'["\\]', r"\\\g<0>", text) + '"'


def _end(value: float | int) -> str:
    if isinstance(value, int):
        return "*" if value in (DATE_MIN, DATE_MAX) else quoted(format_date(value))
    return "*" if isinf(value) else repr(value)
