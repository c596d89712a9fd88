"""From the tree of a query to what the index of a collection evaluates.

A word without a field is looked for in every text field. A text becomes words as the field's own
analyser says: `wi-fi` is the phrase "wi fi". The beginning of a word is not stemmed, though the
words of the field may be: so `runn*` does not find what `running` finds.

A text without any word, as the dash in `rock - roll`, is left out, wherever it stands: it would
match nothing or everything, and nobody means that. If nothing is left, that is an error.

`title:*` is for all that have something in that field: a word, a keyword, a number or a date.

Keywords match exactly. A date is the whole day, a date-time that moment: `day:2020-01-31` and
`day:<=2020-01-31` have all of that day, and `day:>2020-01-31` begins with the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, nextafter
from typing import assert_never

from driftline.engine.ui.near import did_you_mean
from driftline.index.documents.schema import (
    Collection,
    StoredField,
    TextField,
    ValueField,
)
from driftline.index.documents.values import DATE_MAX, DATE_MIN, Kind, number_of, period_of, shown
from driftline.index.query.bound import (
    AllOf,
    AnyOf,
    AnyWord,
    Between,
    Bound,
    BoundPhrase,
    Equals,
    Every,
    KeywordsFrom,
    Near,
    Part,
    Scoring,
    Without,
    Word,
    WordsFrom,
)
from driftline.index.query.errors import Place, QueryError
from driftline.index.query.syntax import (
    All,
    And,
    Fuzzy,
    In,
    Leaf,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Range,
    Words,
)


def bind(query: Query, collection: Collection) -> Bound:
    """What a query means for a collection. Raises QueryError."""
    root = _Binder(query.text, collection).bound(query.root, None)
    if root is None:
        raise QueryError("there is no word to look for", query.text, query.root.place)
    return Bound(root, tuple(dict.fromkeys(_scoring(root))))


def _scoring(part: Part) -> Iterator[Scoring]:
    match part:
        case AllOf() | AnyOf():
            for each in part.parts:
                yield from _scoring(each)
        case Word() | BoundPhrase() | WordsFrom() | Near():
            yield part


class _Binder:
    """Binds the nodes of one query; None stands for a text without words."""

    def __init__(self, text: str, collection: Collection) -> None:
        self._text = text
        self._collection = collection

    def bound(self, node: Node, field: TextField | ValueField | None) -> Part | None:
        match node:
            case In():
                return self.bound(node.part, self._field(node))
            case Not():
                part = self.bound(node.part, field)
                return None if part is None else Without(part)
            case And():
                return _joined(AllOf, (self.bound(part, field) for part in node.parts))
            case Or():
                return _joined(AnyOf, (self.bound(part, field) for part in node.parts))
        match field:
            case None:
                return self._anywhere(node)
            case TextField():
                return self._in_text(node, field)
            case ValueField(kind=Kind.KEYWORD):
                return self._in_keywords(node, field)
            case ValueField():
                return self._in_values(node, field)

    def _field(self, node: In) -> TextField | ValueField:
        name, known = node.field, self._collection.by_name
        place = Place(node.place.start, node.place.start + len(name))
        field = known.get(name)
        if field is None:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise QueryError(
                f"there is no field {shown(name)}{near}; if it is no field, write \\ before it",
                self._text,
                place,
            )
        if isinstance(field, StoredField):
            problem = f"the field {name!r} is only stored, and cannot be searched"
            raise QueryError(problem, self._text, place)
        return field

    def _anywhere(self, leaf: Leaf) -> Part | None:
        if isinstance(leaf, All):
            return Every()
        fields = self._collection.texts
        if not fields:
            raise self._wrong(leaf, "there is no text field to look in: name a field, as year:1990")
        return _joined(AnyOf, (self._in_text(leaf, field) for field in fields))

    def _in_text(self, leaf: Leaf, field: TextField) -> Part | None:
        number, name, analyser = field.number, field.name, field.analyser
        match leaf:
            case Words() | Phrase():
                words = analyser.words(leaf.text)
                if len(words) < 2:
                    return Word(number, name, words[0]) if words else None
                slop = leaf.slop if isinstance(leaf, Phrase) else 0
                return BoundPhrase(number, name, tuple(words), slop)
            case Prefix():
                start = self._one(leaf, analyser.unstemmed(leaf.text))
                return WordsFrom(number, name, start) if start else None
            case Fuzzy():
                word = self._one(leaf, analyser.words(leaf.text))
                return Near(number, name, word) if word else None
            case Range():
                raise self._wrong(leaf, f"{name!r} is a text, and has no ranges")
            case All():
                return AnyWord(number, name)
        assert_never(leaf)

    def _one(self, leaf: Prefix | Fuzzy, words: list[str]) -> str:
        if len(words) > 1:
            sign = "*" if isinstance(leaf, Prefix) else "~"
            raise self._wrong(
                leaf, f"{sign} is for one word, and this is several: {' '.join(words)}"
            )
        return words[0] if words else ""

    def _in_keywords(self, leaf: Leaf, field: ValueField) -> Part:
        match leaf:
            case Words() | Phrase(slop=0):
                return Equals(field.number, field.name, leaf.text)
            case Prefix():
                return KeywordsFrom(field.number, field.name, leaf.text)
            case All():
                return KeywordsFrom(field.number, field.name, "")
        raise self._wrong(
            leaf, f"{field.name!r} has keywords: look for one, or for a beginning, as tea*"
        )

    def _in_values(self, leaf: Leaf, field: ValueField) -> Part:
        match leaf:
            case Words() | Phrase(slop=0):
                within = Range(leaf.text, leaf.text)
            case Range():
                within = leaf
            case All():
                within = Range(None, None)
            case _:
                what = f"{field.name!r} is a {field.kind}"
                raise self._wrong(leaf, f"{what}: look for one, or for a range, as [1990 TO *]")
        try:
            low, high = _numbers(within) if field.kind is Kind.NUMBER else _dates(within)
        except ValueError as error:
            raise self._wrong(leaf, str(error)) from None
        return Between(field.number, field.name, low, high)

    def _wrong(self, leaf: Leaf, problem: str) -> QueryError:
        return QueryError(problem, self._text, leaf.place)


def _numbers(within: Range) -> tuple[float, float]:
    """The least and the largest number of a range. Raises ValueError, in words."""
    low = -inf if within.low is None else number_of(within.low)
    high = inf if within.high is None else number_of(within.high)
    return (
        low if within.with_low else nextafter(low, inf),
        high if within.with_high else nextafter(high, -inf),
    )


def _dates(within: Range) -> tuple[int, int]:
    """The first and the last microsecond of a range. Raises ValueError, in words."""
    low, high = DATE_MIN, DATE_MAX
    if within.low is not None:
        first, last = period_of(within.low)
        low = first if within.with_low else last + 1
    if within.high is not None:
        first, last = period_of(within.high)
        high = last if within.with_high else first - 1
    return low, high


def _joined(kind: type[AllOf] | type[AnyOf], parts: Iterable[Part | None]) -> Part | None:
    """The parts as one, canonical."""
    found: dict[Part, None] = {}
    for part in parts:
        if part is not None:
            found |= dict.fromkeys(part.parts if isinstance(part, kind) else (part,))
    if kind is AllOf and len(found) > 1:
        found.pop(Every(), None)
    return kind(tuple(found)) if len(found) > 1 else next(iter(found), None)
