"""The tree of a query, as it is written. `str` writes it so that `parse` gives the same tree.

    cat dog               both words, in any of the text fields; also `cat AND dog`
    cat OR dog            one of them; weaker than AND
    -cat  NOT cat         not this
    (cat OR dog) bird     parentheses
    "big cat"  "a b"~2    words one after the other; with 2 others between them, or exchanged
    cat*                  words that begin so
    cat~                  words with at most one letter more, less or other; also `cat~1`
    title:cat  title:(cat OR dog)       in a field
    year:[1990 TO 2000}  year:>=1990    from 1990 up to 2000, without 2000; `*` is an open end
    *  title:*            all documents; all that have something in a field
    \\*  \\(  \\OR            a backslash takes the meaning off the next character, or off a word

AND, OR and NOT are words of the language in capitals only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from driftline.index.query.errors import Place

NOWHERE = Place(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """`place`: where it is in the text of the query."""

    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class All(_Node):
    """All documents."""

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class Words(_Node):
    """A text without spaces; that may be several words, as `wi-fi`."""

    text: str

    def __str__(self) -> str:
        return bare(self.text)


@dataclass(frozen=True, slots=True)
class Phrase(_Node):
    """Words one after the other; together they are out of place by at most `slop`."""

    text: str
    slop: int = 0

    def __str__(self) -> str:
        return quoted(self.text) + (f"~{self.slop}" if self.slop else "")


@dataclass(frozen=True, slots=True)
class Prefix(_Node):
    """Words that begin so."""

    text: str

    def __str__(self) -> str:
        return f"{bare(self.text)}*"


@dataclass(frozen=True, slots=True)
class Fuzzy(_Node):
    """Words that differ by one letter at most."""

    text: str

    def __str__(self) -> str:
        return f"{bare(self.text)}~"


@dataclass(frozen=True, slots=True)
class Range(_Node):
    """Values from `low` to `high`; None: without an end. `with_low`: `low` is one of them."""

    low: str | None
    high: str | None
    with_low: bool = True
    with_high: bool = True

    def __str__(self) -> str:
        if self.high is None and self.low is not None:
            return f">{'=' * self.with_low}{_bound(self.low)}"
        if self.low is None and self.high is not None:
            return f"<{'=' * self.with_high}{_bound(self.high)}"
        first, last = "[" if self.with_low else "{", "]" if self.with_high else "}"
        return f"{first}{_bound(self.low)} TO {_bound(self.high)}{last}"


@dataclass(frozen=True, slots=True)
class In(_Node):
    """A query for one field."""

    field: str
    part: Node

    def __str__(self) -> str:
        return f"{self.field}:{_part(self.part, And, Or, Not, In)}"


@dataclass(frozen=True, slots=True)
class Not(_Node):
    """What does not match."""

    part: Node

    def __str__(self) -> str:
        return f"-{_part(self.part, And, Or, Not)}"


@dataclass(frozen=True, slots=True)
class And(_Node):
    """What matches all parts, two or more."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " ".join(_part(part, And, Or) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or(_Node):
    """What matches any of the parts, two or more."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " OR ".join(_part(part, Or) for part in self.parts)


Leaf = All | Words | Phrase | Prefix | Fuzzy | Range
Node = Leaf | In | Not | And | Or


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the text that it was read from."""

    root: Node
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return str(self.root)


_SPECIAL = re.compile(r'[\s()"*~\\]|(?<=\w)(?:[\^?]|\|\||&&)(?=\w)')
_MEANT = re.compile(r"[-+<>=\[{!/|&]|(?:AND|OR|NOT)\Z|[^\W\d][\w.-]*:")
"""Texts whose beginning would have a meaning."""

_PLAIN_BOUND = re.compile(r'[^\s()\[\]{}"*=]+')


def _part(node: Node, *weak: type[Node]) -> str:
    """A part; in parentheses if it is one of these."""
    return f"({node})" if isinstance(node, weak) else str(node)


def bare(text: str) -> str:
    """A text as a word of a query."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    return f"\\{escaped}" if _MEANT.match(text) else escaped


def quoted(text: str) -> str:
    """A text as a phrase of a query."""
    return '"' + re.sub(r'["\\]', r"\\\g<0>", text) + '"'


def _bound(text: str | None) -> str:
    if text is None:
        return "*"
    return text if _PLAIN_BOUND.fullmatch(text) else quoted(text)
