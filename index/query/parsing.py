"""From the text of a query to its tree, or to an error that points at the place.

>>> parse("big OR -title:cat").root
Or(parts=(Words(text='big'), Not(part=In(field='title', part=Words(text='cat')))))

The grammar is in `grammar.lark`. Texts are from strangers: their length, depth and number of leaves
are limited, and nothing goes down a tree before its depth is known.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.visitors import v_args

from driftline.index.query.errors import Place, QueryError
from driftline.index.query.syntax import (
    All,
    And,
    Fuzzy,
    In,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Range,
    Words,
)

LENGTH_MAX = 4096
"""Characters of a query."""

DEPTH_MAX = 64
"""Levels of a tree."""

LEAVES_MAX = 128
"""Leaves of a tree."""

SLOP_MAX = 100
"""Other words within a phrase."""


_WORD = re.compile(r"(?!(?:AND|OR|NOT)\Z)\w+")


def parse(text: str) -> Query:
    """The tree of a query; an empty one is for all documents. Raises QueryError."""
    if len(text) <= LENGTH_MAX and _WORD.fullmatch(text):  # most are one word: a third of the time
        return Query(Words(text, place=Place(0, len(text))), text)
    if len(text) > LENGTH_MAX:
        problem = f"the query has {len(text)} characters; the most is {LENGTH_MAX}"
        raise QueryError(problem, text, Place(LENGTH_MAX, LENGTH_MAX))
    if half := re.search("[\ud800-\udfff]", text):
        raise QueryError("the query is not Unicode: here is half a character", text, _of(half))
    if not text.strip():
        return Query(All(), text)
    try:
        root: object = _parser().parse(text)
    except UnexpectedInput as error:
        raise _explained(error, text) from None
    except _Wrong as error:
        raise QueryError(str(error), text, error.place) from None
    assert isinstance(root, Node)  # lark's types know of no transformer
    _check_size(root, text)
    return Query(root, text)


def _check_size(root: Node, text: str) -> None:
    """Raises QueryError for a tree that is too deep or has too many leaves."""
    leaves, waiting = 0, [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise QueryError(f"it is nested more than {DEPTH_MAX} deep", text, node.place)
        match node:
            case And() | Or():
                waiting += [(part, depth + 1) for part in reversed(node.parts)]
            case Not() | In():
                waiting.append((node.part, depth + 1))
            case _:
                leaves += 1
                if leaves > LEAVES_MAX:
                    problem = f"the query has more than {LEAVES_MAX} words, phrases and ranges"
                    raise QueryError(problem, text, node.place)


class _Wrong(Exception):
    """A token that fits the grammar has a value that does not."""

    def __init__(self, problem: str, place: Place) -> None:
        super().__init__(problem)
        self.place = place


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Makes the nodes as the parser finds them, from the leaves up."""

    def any_of(self, *parts: Node) -> Node:
        return Or(parts, place=_across(parts[0].place, parts[-1].place))

    def all_of(self, *parts: Node) -> Node:
        return And(parts, place=_across(parts[0].place, parts[-1].place))

    def not_(self, sign: Token, part: Node) -> Node:
        return Not(part, place=_across(_place(sign), part.place))

    def in_(self, name: Token, part: Node) -> Node:
        return In(name[:-1], part, place=_across(_place(name), part.place))

    def words(self, token: Token) -> Node:
        if problem := _of_others(token):
            raise _Wrong(problem, _place(token))
        return Words(_unescaped(token), place=_place(token))

    def prefix(self, token: Token) -> Node:
        return Prefix(_unescaped(token[:-1]), place=_place(token))

    def fuzzy(self, token: Token) -> Node:
        text, _, distance = token.rpartition("~")
        if distance not in ("", "1"):
            raise _Wrong("words can differ by one letter only: cat~1", _place(token))
        return Fuzzy(_unescaped(text), place=_place(token))

    def phrase(self, token: Token) -> Node:
        text, _, slop = token.rpartition('"')
        if len(slop) > len(str(SLOP_MAX)) + 1 or int(slop[1:] or 0) > SLOP_MAX:
            raise _Wrong(f"a phrase can have ~{SLOP_MAX} at most", _place(token))
        return Phrase(_unescaped(text[1:]), int(slop[1:] or 0), place=_place(token))

    def everything(self, token: Token) -> Node:
        return All(place=_place(token))

    def between(self, first: Token, low: Token, high: Token, last: Token) -> Node:
        return _range(low, high, first == "[", last == "]", first, last)

    def compared(self, sign: Token, bound: Token) -> Node:
        low, high = (bound, None) if sign[0] == ">" else (None, bound)
        return _range(low, high, sign != ">", sign != "<", sign, bound)


def _range(
    lowest: Token | None,
    highest: Token | None,
    with_low: bool,
    with_high: bool,
    first: Token,
    last: Token,
) -> Range:
    """A range; an open end counts as being in it."""
    low, high = _end(lowest), _end(highest)
    place = _across(_place(first), _place(last))
    return Range(low, high, with_low or low is None, with_high or high is None, place=place)


def _end(token: Token | None) -> str | None:
    if token is None or token == "*":
        return None
    return _unescaped(token[1:-1]) if token.type == "QUOTED" else str(token)


@cache
def _parser() -> Lark:
    grammar = files("driftline.index.query").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", transformer=_Builder())


def _place(token: Token) -> Place:
    assert token.start_pos is not None
    assert token.end_pos is not None
    return Place(token.start_pos, token.end_pos)


def _across(first: Place, last: Place) -> Place:
    return Place(first.start, last.end)


def _of(found: re.Match[str]) -> Place:
    return Place(*found.span())


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


# What is wrong, in words.


def _of_others(token: str) -> str:
    """What is wrong with a word that means something else in other query languages."""
    if found := re.search(r"(?:\A|\w)(\|\||&&)(?:\Z|\w)", token):
        sign = found[1]
        meant = {"||": "OR", "&&": "AND"}[sign]
        return f"{sign} is written {meant}; write \\{sign} for the characters themselves"
    if token[0] == "!" and token[1:2].isalnum():
        return f"! is written -, as -{token[1:]}, or NOT; write \\! for the character itself"
    if re.search(r"\w\^\d", token):
        return "no word counts more than others by ^; write \\^ for the character itself"
    if re.search(r"\w\?\w", token):
        return "? stands for no letter, as * does at the end; write \\? for the character itself"
    if re.fullmatch(r"/.*\w.*/", token):
        return "there are no patterns between /; write \\/ for the character itself"
    return ""


_CHARACTERS = {
    '"': 'this " has no other one; write \\" for the character itself',
    "*": "* can only be at the end of a word, or by itself; write \\* for the character itself",
    "~": 'a ~ can only be at the end of a word, as cat~1, or of a phrase, as "a cat"~2; '
    "write \\~ for the character itself",
    "\\": "after \\ a character is missing; write \\\\ for the character itself",
}


def _explained(error: UnexpectedInput, text: str) -> QueryError:
    """The error of the parser as one for people."""
    expected: set[str] = set()
    if isinstance(error, UnexpectedToken):
        expected = set(error.expected)
    elif isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed)
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    start = len(text) if at_end else error.pos_in_stream or 0
    found = re.compile(r"AND|OR|NOT|.|", re.DOTALL).match(text, start)
    assert found is not None
    return QueryError(_problem(found[0], expected), text, _of(found))


def _problem(found: str, expected: set[str]) -> str:
    """What is wrong with what was found; "": the end. `expected`: what could have been there."""
    if expected & {"BOUND", "_TO", "HIGH"}:
        return "a range is written [1990 TO 2000], with { or } without that end, or >=1990"
    if found in _CHARACTERS:
        return _CHARACTERS[found]
    if not expected & {"$END", "_CLOSE", "_OR"}:
        return f"a word is missing before {found}" if found else "a word is missing at the end"
    return "there is no ( for this )" if found == ")" else "a ) is missing"
