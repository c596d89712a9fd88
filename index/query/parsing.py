"""Query parser: turns query text into a tree, or into an error that points at a position.

    cat dog               both words, in any of the text fields; also `cat AND dog`
    cat OR dog            at least one of them; AND binds tighter
    -cat  NOT cat         documents without the word
    (cat OR dog) bird     parentheses
    "big cat"             adjacent words
    cat*                  words with this prefix
    cat~                  words at an edit distance of at most 1; also `cat~1`
    title:cat  title:(cat OR dog)       words in one field
    year:[1990 TO 2000}   from 1990 up to but excluding 2000; `*` is an open end
    year:>=1990           at least 1990; also `>`, `<` and `<=`
    *  title:*            all documents; all documents with a value in a field
    \\*  \\(  \\OR            a backslash escapes the next character, or an operator

AND, OR and NOT are operators only in capitals. The grammar is in `grammar.lark`. Query texts are
untrusted. Length, depth, number of leaves and number of prefix and fuzzy leaves are checked before
any word is looked up, and the depth is checked without recursion.

A word without a field is searched in every text field. The field's analyser splits text into words:
`wi-fi` is the phrase "wi fi". A prefix is not stemmed, although the words of the field may be, so
`runn*` does not find what `running` finds.

Text without any word, such as the dash in `rock - roll`, is ignored: as part of the query it would
match nothing or everything. A query that contains only such text is an error.

Keywords match exactly. A date means the whole day, a date-time one microsecond: `day:2020-01-31`
and `day:<=2020-01-31` include all of that day, and `day:>2020-01-31` begins with the next day.

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
"""Largest depth of a parse tree, in levels."""

LEAVES_MAX = 128
"""Largest number of leaves of a parse tree."""

EXPANDED_MAX = 16
"""Largest number of prefix and fuzzy leaves of a parse tree.

Each may expand to any number of words and take some tens of milliseconds.
"""

_WORD = re.compile(r"(?!(?:AND|OR|NOT)\Z)\w+")

_CONTEXT_CHARS, _EXCERPT_CHARS = 40, 76
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
        span: The part of the text that is wrong.

    `position`: index of the first character of this part; `picture`: two lines that show it.

    >>> print(QueryError("there is no field 'titel'", "cat titel:dog", TextSpan(4, 10)))
    there is no field 'titel'
      cat titel:dog
          ^^^^^^
    """

    def __init__(self, problem: str, query: str = "", span: TextSpan = _BEGINNING) -> None:
        self.problem = problem
        self.position = span.start
        self.picture = _picture(query, span)
        text = f"{problem}\n{self.picture}" if query else problem
        super().__init__(text)


def parse(text: str, collection: Collection) -> Query:
    """Parse a query for a collection; an empty text matches all documents.

    Raises QueryError.
    """
    if len(text) > LENGTH_MAX:
        problem = f"the query has {len(text)} characters; the maximum is {LENGTH_MAX}"
        raise QueryError(problem, text, TextSpan(LENGTH_MAX, LENGTH_MAX))
    if surrogate := re.search("[\ud800-\udfff]", text):
        raise QueryError("the query has an unpaired surrogate", text, _match_span(surrogate))
    if not text.strip():
        return query_of(MatchAll())
    parse_tree = _parse_grammar(text)
    _check_size(parse_tree, text)
    root = _Binder(text, collection).bind(parse_tree, None)
    if root is None:
        raise QueryError("the query contains no word", text, _span_of(parse_tree))
    return query_of(root)


def _parse_grammar(text: str) -> Tree[Token]:
    """Parse a text with the grammar. Raises QueryError."""
    if _WORD.fullmatch(text):  # most queries are one word; this path takes a third of the time
        return Tree("words", [Token("WORDS", text, 0, end_pos=len(text))])
    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        raise _to_query_error(error, text) from None


@cache
def _parser() -> Lark:
    grammar = files("driftline.index.query").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr")


def _check_size(root: Tree[Token], text: str) -> None:
    """Raise QueryError if a tree is too deep or has too many leaves."""
    leaves = expanded = 0
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > DEPTH_MAX:
            problem = f"the query is nested more than {DEPTH_MAX} levels deep"
            raise QueryError(problem, text, _span_of(node))
        if parts := _parts(node):
            stack += [(part, depth + 1) for part in reversed(parts)]
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
    """Converter of one parse tree to a query tree; a subtree without words is converted to None."""

    def __init__(self, text: str, collection: Collection) -> None:
        self._text = text
        self._collection = collection

    def bind(self, node: Tree[Token], field: TextField | ValueField | None) -> Node | None:
        """Convert a subtree; `field`: the field in which to search; None: all text fields."""
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
                return self._in_all_texts(node)
            case TextField():
                return self._in_text(node, field)
            case ValueField(kind=Kind.KEYWORD):
                return self._in_keywords(node, field)
            case ValueField():
                return self._in_values(node, field)

    def _field(self, token: Token) -> TextField | ValueField:
        name, fields = str(token[:-1]), self._collection.by_name
        start = token.start_pos or 0
        span = TextSpan(start, start + len(name))
        field = fields.get(name)
        if field is None:
            hint = did_you_mean(name, fields) or f"; the fields are {', '.join(fields)}"
            raise QueryError(
                f"there is no field {short_repr(name)}{hint}; if it is not a field, "
                "write \\ before it",
                self._text,
                span,
            )
        if isinstance(field, StoredField):
            problem = f"the field {name!r} is only stored, and cannot be searched"
            raise QueryError(problem, self._text, span)
        return field

    def _in_all_texts(self, leaf: Tree[Token]) -> Node | None:
        if leaf.data == "everything":
            return MatchAll()
        fields = self._collection.text_fields
        if not fields:
            raise self._error(
                leaf, "the collection has no text field; name a field, as in year:1990"
            )
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
                start = self._single_word(leaf, "*", analyser.unstemmed(self._prefix(leaf)))
                return Prefix(number, name, start) if start else None
            case "fuzzy":
                word = self._single_word(leaf, "~", analyser.words(self._fuzzy(leaf)))
                return Fuzzy(number, name, word) if word else None
            case "everything":
                return Exists(number, name)
        raise self._error(leaf, f"{name!r} is a text, and has no ranges")

    def _single_word(self, leaf: Tree[Token], sign: str, words: list[str]) -> str:
        """Return the only word of a leaf, "" if it has none. Raises QueryError."""
        if len(words) > 1:
            problem = f"{sign} is for one word, and these are several: {' '.join(words)}"
            raise self._error(leaf, problem)
        return words[0] if words else ""

    def _in_keywords(self, leaf: Tree[Token], field: ValueField) -> Node:
        match leaf.data:
            case "words" | "phrase":
                return Keyword(field.number, field.name, self._phrase(leaf))
            case "prefix":
                return KeywordPrefix(field.number, field.name, self._prefix(leaf))
            case "everything":
                return KeywordPrefix(field.number, field.name, "")
        raise self._error(
            leaf, f"{field.name!r} has keywords; search for a keyword, or a prefix such as tea*"
        )

    def _in_values(self, leaf: Tree[Token], field: ValueField) -> Node:
        bounds = _Bounds(None, None)
        match leaf.data:
            case "words" | "phrase":
                text = self._phrase(leaf)
                bounds = _Bounds(text, text)
            case "between" | "compared":
                bounds = _bounds_of(leaf)
            case "prefix" | "fuzzy":
                problem = f"{field.name!r} is a {field.kind}; search for a {field.kind}, or a range"
                raise self._error(leaf, f"{problem} such as [1990 TO *]")
        try:
            low, high = _numbers(bounds) if field.kind is Kind.NUMBER else _dates(bounds)
        except ValueError as error:
            raise self._error(leaf, str(error)) from None
        return Range(field.number, field.name, low, high)

    # Texts of leaves.

    def _phrase(self, leaf: Tree[Token]) -> str:
        """Return the text of words or a phrase."""
        token = _tokens(leaf)[0]
        if leaf.data == "phrase":
            return _unescape(token[1:-1])
        if problem := _foreign_syntax(token):
            raise self._error(leaf, problem)
        return _unescape(token)

    def _prefix(self, leaf: Tree[Token]) -> str:
        return _unescape(_tokens(leaf)[0][:-1])

    def _fuzzy(self, leaf: Tree[Token]) -> str:
        text, _, distance = _tokens(leaf)[0].rpartition("~")
        if distance not in ("", "1"):
            raise self._error(leaf, "words can differ by one letter only: cat~1")
        return _unescape(text)

    def _error(self, leaf: Tree[Token], problem: str) -> QueryError:
        return QueryError(problem, self._text, _span_of(leaf))


class _Bounds(NamedTuple):
    """Bounds of a range, as written; None: an open end."""

    low: str | None
    high: str | None
    includes_low: bool = True
    includes_high: bool = True


def _bounds_of(leaf: Tree[Token]) -> _Bounds:
    if leaf.data == "compared":
        sign, bound = _tokens(leaf)
        if sign[0] == ">":
            return _Bounds(_bound(bound), None, includes_low=sign != ">")
        return _Bounds(None, _bound(bound), includes_high=sign != "<")
    left_bracket, low, high, right_bracket = _tokens(leaf)
    return _Bounds(_bound(low), _bound(high), left_bracket == "[", right_bracket == "]")


def _bound(token: Token) -> str | None:
    if token == "*":
        return None
    return _unescape(token[1:-1]) if token.type == "QUOTED" else str(token)


def _numbers(bounds: _Bounds) -> tuple[float, float]:
    """Return the smallest and the largest number of a range. Raises ValueError with a user
    message."""
    low, high = -inf, inf
    if bounds.low is not None:
        low = number_of(bounds.low)
        low = low if bounds.includes_low else nextafter(low, inf)
    if bounds.high is not None:
        high = number_of(bounds.high)
        high = high if bounds.includes_high else nextafter(high, -inf)
    return low, high


def _dates(bounds: _Bounds) -> tuple[int, int]:
    """Return the first and the last microsecond of a range. Raises ValueError with a user
    message."""
    low, high = DATE_MIN, DATE_MAX
    if bounds.low is not None:
        first, last = period_of(bounds.low)
        low = first if bounds.includes_low else last + 1
    if bounds.high is not None:
        first, last = period_of(bounds.high)
        high = last if bounds.includes_high else first - 1
    return low, high


def _picture(query: str, span: TextSpan) -> str:
    """Return two lines: an excerpt of the query around the span, and marks below the span."""
    first = max(0, span.start - _CONTEXT_CHARS)
    excerpt = query[first : first + _EXCERPT_CHARS]
    excerpt = "".join(each if each.isprintable() else " " for each in excerpt)
    before, marked = excerpt[: span.start - first], excerpt[span.start - first : span.end - first]
    return f"  {excerpt}\n  {' ' * _width(before)}{'^' * max(1, _width(marked))}"


def _width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.category(each) == "Mn" for each in text)


def _match_span(match: re.Match[str]) -> TextSpan:
    return TextSpan(*match.span())


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


# User messages.


def _foreign_syntax(token: str) -> str:
    """Return the error for a word with syntax of other query languages; "" if it has none."""
    if match := re.search(r"(?:\A|\w)(\|\||&&)(?:\Z|\w)", token):
        sign = match[1]
        operator = {"||": "OR", "&&": "AND"}[sign]
        return f"{sign} is written {operator}; write \\{sign} for the characters themselves"
    if token[0] == "!" and token[1:2].isalnum():
        return f"! is written -, as in -{token[1:]}, or NOT; write \\! for the character itself"
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


_PROBLEMS = {
    '"': 'this " has no closing "; write \\" for the character itself',
    "*": "* can only be at the end of a word, or by itself; write \\* for the character itself",
    "~": "a ~ can only be at the end of a word, as in cat~1; write \\~ for the character itself",
    "\\": "after \\ a character is missing; write \\\\ for the character itself",
}


def _to_query_error(error: UnexpectedInput, text: str) -> QueryError:
    """Convert a parser error to a user message."""
    expected: set[str] = set()
    if isinstance(error, UnexpectedToken):
        expected = set(error.expected)
    elif isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed)
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    start = len(text) if at_end else error.pos_in_stream or 0
    match = re.compile(r"AND|OR|NOT|.|", re.DOTALL).match(text, start)
    assert match is not None
    return QueryError(_problem(match[0], expected), text, _match_span(match))


def _problem(unexpected: str, expected: set[str]) -> str:
    """Return the error for an unexpected token.

    `unexpected`: its text, "" at the end of the query; `expected`: names of the tokens that fit.
    """
    if expected & {"BOUND", "_TO", "HIGH"}:
        return "a range is written [1990 TO 2000] or >=1990; { or } excludes the bound beside it"
    if unexpected in _PROBLEMS:
        return _PROBLEMS[unexpected]
    if not expected & {"$END", "_CLOSE", "_OR"}:
        place = f"before {unexpected}" if unexpected else "at the end"
        return f"a word is missing {place}"
    return "unmatched )" if unexpected == ")" else "a ) is missing"
