"""Query parser: turns query text into a tree, or into an error that points at a position.

    cat dog               both words, in any of the text fields; also `cat AND dog`
    cat OR dog            at least one of them; AND binds tighter
    -cat  NOT cat         documents without the word
    (cat OR dog) bird     parentheses
    "big cat"             adjacent words
    cat*                  words with this prefix
    cat~                  words at an edit distance of at most 1; also `cat~1`
    title:cat  title:(cat OR dog)       words in one field
    year:[1990 TO 2000}  year:>=1990    from 1990 up to but excluding 2000; `*` is an open end
    *  title:*            all documents; all documents with a value in a field
    \\*  \\(  \\OR            a backslash escapes the next character, or an operator

AND, OR and NOT are operators only in capitals. The grammar is in `grammar.lark`. Query texts are
untrusted. Length, depth, number of leaves and number of expensive leaves are checked before any
word is looked up, and the depth is checked without recursion.

A word without a field is searched in every text field. The field's analyser splits text into words:
`wi-fi` is the phrase "wi fi". A prefix is not stemmed, although the words of the field may be, so
`runn*` does not find what `running` finds.

Text without any word, such as the dash in `rock - roll`, is ignored: as part of the query it would
match nothing or everything. A query without any word is an error.

Keywords match exactly. A date means the whole day, a date-time one moment: `day:2020-01-31` and
`day:<=2020-01-31` include all of that day, and `day:>2020-01-31` begins with the next day.

>>> from driftline.index.documents.schema import DEFAULT
>>> str(parse("big -title:cat", DEFAULT.collections["documents"]))
'(text:big OR title:big) -title:cat'
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib.resources import files
from math import inf, nextafter
from typing import NamedTuple

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from driftline.engine.errors import DriftlineError
from driftline.engine.texts import did_you_mean
from driftline.index.documents.schema import Collection, StoredField, TextField, ValueField
from driftline.index.documents.values import (
    DATE_MAX,
    DATE_MIN,
    Kind,
    number_of,
    period_of,
    short_repr,
)
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
    Query,
    Range,
    Term,
    combine,
    query_of,
)

LENGTH_MAX = 4096
"""Largest length of a query, in characters."""

DEPTH_MAX = 64
"""Largest depth of a tree, in levels."""

LEAVES_MAX = 128
"""Largest number of leaves of a tree."""

EXPANDED_MAX = 16
"""Largest number of prefix and fuzzy leaves of a tree.

Each may expand to any number of words and take some tens of milliseconds.
"""

_WORD = re.compile(r"(?!(?:AND|OR|NOT)\Z)\w+")

_BEFORE, _SHOWN = 40, 76
"""Characters of the query that an error shows: before the position, and in total."""


class TextSpan(NamedTuple):
    """A part of a query's text: text[start:end]."""

    start: int
    end: int


_BEGINNING = TextSpan(0, 0)


class QueryError(DriftlineError):
    """Raised if a query cannot be parsed or does not fit the collection.

    Args:
        problem: What is wrong, and what to do.
        query: The text of the query.
        place: The part of the text that is wrong.

    >>> print(QueryError("there is no field 'titel'", "cat titel:dog", TextSpan(4, 10)))
    there is no field 'titel', at character 5
      cat titel:dog
          ^^^^^^
    """

    def __init__(self, problem: str, query: str = "", place: TextSpan = _BEGINNING) -> None:
        self.problem = problem
        self.position = place.start
        self.picture = _picture(query, place)
        text = f"{problem}, at character {place.start + 1}\n{self.picture}" if query else problem
        super().__init__(text)


def parse(text: str, collection: Collection) -> Query:
    """Parse a query for a collection; an empty text matches all documents.

    Raises QueryError.
    """
    if len(text) > LENGTH_MAX:
        problem = f"the query has {len(text)} characters; the most is {LENGTH_MAX}"
        raise QueryError(problem, text, TextSpan(LENGTH_MAX, LENGTH_MAX))
    if half := re.search("[\ud800-\udfff]", text):
        raise QueryError(
            "the query is not Unicode: here is half a character", text, _match_span(half)
        )
    if not text.strip():
        return query_of(MatchAll())
    root = _parse_grammar(text)
    _check_size(root, text)
    found = _Binder(text, collection).bind(root, None)
    if found is None:
        raise QueryError("the query contains no word", text, _span_of(root))
    return query_of(found)


def _parse_grammar(text: str) -> Tree[Token]:
    """Parse a text with the grammar. Raises QueryError."""
    if _WORD.fullmatch(text):  # most queries are one word; this path takes a third of the time
        return Tree("words", [Token("WORDS", text, 0, end_pos=len(text))])
    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        raise _explained(error, text) from None


@cache
def _parser() -> Lark:
    grammar = files("driftline.index.query").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr")


def _check_size(root: Tree[Token], text: str) -> None:
    """Raise QueryError if a tree is too deep or has too many leaves."""
    leaves = expanded = 0
    waiting = [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise QueryError(f"it is nested more than {DEPTH_MAX} deep", text, _span_of(node))
        if parts := _parts(node):
            waiting += [(part, depth + 1) for part in reversed(parts)]
        else:
            leaves += 1
            if leaves > LEAVES_MAX:
                problem = f"the query has more than {LEAVES_MAX} words, phrases and ranges"
                raise QueryError(problem, text, _span_of(node))
            expanded += node.data in ("prefix", "fuzzy")
            if expanded > EXPANDED_MAX:
                problem = f"the query has more than {EXPANDED_MAX} words with * or ~"
                raise QueryError(problem, text, _span_of(node))


def _parts(node: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in node.children if isinstance(child, Tree)]


def _tokens(node: Tree[Token]) -> list[Token]:
    return [child for child in node.children if isinstance(child, Token)]


def _span_of(node: Tree[Token]) -> TextSpan:
    """Return the span of a subquery, without surrounding parentheses."""
    first, last = node, node
    start: int | None = None
    while start is None:
        child = first.children[0]
        if isinstance(child, Token):
            start = child.start_pos or 0
        else:
            first = child
    while isinstance(child := last.children[-1], Tree):
        last = child
    return TextSpan(start, child.end_pos or 0)


class _Binder:
    """Converter of one parse tree to a query tree; None stands for text without words."""

    def __init__(self, text: str, collection: Collection) -> None:
        self._text = text
        self._collection = collection

    def bind(self, node: Tree[Token], field: TextField | ValueField | None) -> Node | None:
        parts = _parts(node)
        match node.data:
            case "in_":
                return self.bind(parts[0], self._field(_tokens(node)[0]))
            case "not_":
                part = self.bind(parts[0], field)
                return None if part is None else Not(part)
            case "all_of":
                return combine(And, (self.bind(part, field) for part in parts))
            case "any_of":
                return combine(Or, (self.bind(part, field) for part in parts))
        match field:
            case None:
                return self._anywhere(node)
            case TextField():
                return self._in_text(node, field)
            case ValueField(kind=Kind.KEYWORD):
                return self._in_keywords(node, field)
            case ValueField():
                return self._in_values(node, field)

    def _field(self, token: Token) -> TextField | ValueField:
        name, known = str(token[:-1]), self._collection.by_name
        start = token.start_pos or 0
        place = TextSpan(start, start + len(name))
        field = known.get(name)
        if field is None:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise QueryError(
                f"there is no field {short_repr(name)}{near}; if it is not a field, "
                "write \\ before it",
                self._text,
                place,
            )
        if isinstance(field, StoredField):
            problem = f"the field {name!r} is only stored, and cannot be searched"
            raise QueryError(problem, self._text, place)
        return field

    def _anywhere(self, leaf: Tree[Token]) -> Node | None:
        if leaf.data == "everything":
            return MatchAll()
        fields = self._collection.texts
        if not fields:
            raise self._wrong(leaf, "there is no text field to look in: name a field, as year:1990")
        return combine(Or, (self._in_text(leaf, field) for field in fields))

    def _in_text(self, leaf: Tree[Token], field: TextField) -> Node | None:
        number, name, analyser = field.number, field.name, field.analyser
        match leaf.data:
            case "words" | "phrase":
                words = analyser.words(self._phrase(leaf))
                if len(words) < 2:
                    return Term(number, name, words[0]) if words else None
                return Phrase(number, name, tuple(words))
            case "prefix":
                start = self._one(leaf, "*", analyser.unstemmed(self._prefix(leaf)))
                return Prefix(number, name, start) if start else None
            case "fuzzy":
                word = self._one(leaf, "~", analyser.words(self._fuzzy(leaf)))
                return Fuzzy(number, name, word) if word else None
            case "everything":
                return Exists(number, name)
        raise self._wrong(leaf, f"{name!r} is a text, and has no ranges")

    def _one(self, leaf: Tree[Token], sign: str, words: list[str]) -> str:
        if len(words) > 1:
            several = " ".join(words)
            raise self._wrong(leaf, f"{sign} is for one word, and this is several: {several}")
        return words[0] if words else ""

    def _in_keywords(self, leaf: Tree[Token], field: ValueField) -> Node:
        match leaf.data:
            case "words" | "phrase":
                return Keyword(field.number, field.name, self._phrase(leaf))
            case "prefix":
                return KeywordPrefix(field.number, field.name, self._prefix(leaf))
            case "everything":
                return KeywordPrefix(field.number, field.name, "")
        raise self._wrong(
            leaf, f"{field.name!r} has keywords: look for one, or for a beginning, as tea*"
        )

    def _in_values(self, leaf: Tree[Token], field: ValueField) -> Node:
        within = _Within(None, None)
        match leaf.data:
            case "words" | "phrase":
                text = self._phrase(leaf)
                within = _Within(text, text)
            case "between" | "compared":
                within = _within(leaf)
            case "prefix" | "fuzzy":
                what = f"{field.name!r} is a {field.kind}"
                raise self._wrong(leaf, f"{what}: look for one, or for a range, as [1990 TO *]")
        try:
            low, high = _numbers(within) if field.kind is Kind.NUMBER else _dates(within)
        except ValueError as error:
            raise self._wrong(leaf, str(error)) from None
        return Range(field.number, field.name, low, high)

    # Texts of leaves.

    def _phrase(self, leaf: Tree[Token]) -> str:
        """Return the text of words or a phrase."""
        token = _tokens(leaf)[0]
        if leaf.data == "phrase":
            return _unescaped(token[1:-1])
        if problem := _foreign_syntax(token):
            raise self._wrong(leaf, problem)
        return _unescaped(token)

    def _prefix(self, leaf: Tree[Token]) -> str:
        return _unescaped(_tokens(leaf)[0][:-1])

    def _fuzzy(self, leaf: Tree[Token]) -> str:
        text, _, distance = _tokens(leaf)[0].rpartition("~")
        if distance not in ("", "1"):
            raise self._wrong(leaf, "words can differ by one letter only: cat~1")
        return _unescaped(text)

    def _wrong(self, leaf: Tree[Token], problem: str) -> QueryError:
        return QueryError(problem, self._text, _span_of(leaf))


class _Within(NamedTuple):
    """A range as written; None: an open end; `with_low`, `with_high`: the bound is included."""

    low: str | None
    high: str | None
    with_low: bool = True
    with_high: bool = True


def _within(leaf: Tree[Token]) -> _Within:
    if leaf.data == "compared":
        sign, bound = _tokens(leaf)
        if sign[0] == ">":
            return _Within(_end(bound), None, with_low=sign != ">")
        return _Within(None, _end(bound), with_high=sign != "<")
    first, low, high, last = _tokens(leaf)
    return _Within(_end(low), _end(high), first == "[", last == "]")


def _end(token: Token) -> str | None:
    if token == "*":
        return None
    return _unescaped(token[1:-1]) if token.type == "QUOTED" else str(token)


def _numbers(within: _Within) -> tuple[float, float]:
    """Return the smallest and the largest number of a range. Raises ValueError with a user
    message."""
    low, high = -inf, inf
    if within.low is not None:
        low = number_of(within.low)
        low = low if within.with_low else nextafter(low, inf)
    if within.high is not None:
        high = number_of(within.high)
        high = high if within.with_high else nextafter(high, -inf)
    return low, high


def _dates(within: _Within) -> tuple[int, int]:
    """Return the first and the last microsecond of a range. Raises ValueError with a user
    message."""
    low, high = DATE_MIN, DATE_MAX
    if within.low is not None:
        first, last = period_of(within.low)
        low = first if within.with_low else last + 1
    if within.high is not None:
        first, last = period_of(within.high)
        high = last if within.with_high else first - 1
    return low, high


def _picture(query: str, place: TextSpan) -> str:
    """Return two lines: an excerpt of the query around the span, and marks below the span."""
    first = max(0, place.start - _BEFORE)
    shown = query[first : first + _SHOWN]
    shown = "".join(each if each.isprintable() else " " for each in shown)
    before, at = shown[: place.start - first], shown[place.start - first : place.end - first]
    return f"  {shown}\n  {' ' * _width(before)}{'^' * max(1, _width(at))}"


def _width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.category(each) == "Mn" for each in text)


def _match_span(found: re.Match[str]) -> TextSpan:
    return TextSpan(*found.span())


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


# User messages.


def _foreign_syntax(token: str) -> str:
    """Return the error for a word with syntax of other query languages; "" if it has none."""
    if found := re.search(r"(?:\A|\w)(\|\||&&)(?:\Z|\w)", token):
        sign = found[1]
        meant = {"||": "OR", "&&": "AND"}[sign]
        return f"{sign} is written {meant}; write \\{sign} for the characters themselves"
    if token[0] == "!" and token[1:2].isalnum():
        return f"! is written -, as -{token[1:]}, or NOT; write \\! for the character itself"
    if re.search(r"\w\^\d", token):
        return "boosting with ^ is not supported; write \\^ for the character itself"
    if re.search(r"\w\?\w", token):
        return (
            "the wildcard ? is not supported; use * at the end of a word; write \\? for the "
            "character itself"
        )
    if re.fullmatch(r"/.*\w.*/", token):
        return "regular expressions between / are not supported; write \\/ for the character itself"
    return ""


_CHARACTERS = {
    '"': 'this " has no other one; write \\" for the character itself',
    "*": "* can only be at the end of a word, or by itself; write \\* for the character itself",
    "~": "a ~ can only be at the end of a word, as cat~1; write \\~ for the character itself",
    "\\": "after \\ a character is missing; write \\\\ for the character itself",
}


def _explained(error: UnexpectedInput, text: str) -> QueryError:
    """Convert a parser error to a user message."""
    expected: set[str] = set()
    if isinstance(error, UnexpectedToken):
        expected = set(error.expected)
    elif isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed)
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    start = len(text) if at_end else error.pos_in_stream or 0
    found = re.compile(r"AND|OR|NOT|.|", re.DOTALL).match(text, start)
    assert found is not None
    return QueryError(_problem(found[0], expected), text, _match_span(found))


def _problem(found: str, expected: set[str]) -> str:
    """Return the error for unexpected text; `found`: "" at the end; `expected`: token names."""
    if expected & {"BOUND", "_TO", "HIGH"}:
        return "a range is written [1990 TO 2000], with { or } without that end, or >=1990"
    if found in _CHARACTERS:
        return _CHARACTERS[found]
    if not expected & {"$END", "_CLOSE", "_OR"}:
        return f"a word is missing before {found}" if found else "a word is missing at the end"
    return "unmatched )" if found == ")" else "a ) is missing"
