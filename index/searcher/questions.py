"""Questions to a searcher, checked: they come from other processes, and are about a collection.

Every function raises Refused: "invalid" for what nobody may ask, "query" for a query that cannot be
understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import NamedTuple, assert_never

from driftline.engine.labels import INFINITY
from driftline.engine.texts import did_you_mean
from driftline.index.documents.schema import Collection, DocumentRefused, ValueField
from driftline.index.documents.values import DATE_MAX, DATE_MIN, Kind, shown
from driftline.index.query.parsing import QueryError, parse
from driftline.index.query.tree import Query
from driftline.index.search.places import Place, Sort
from driftline.serve.errors import Refused
from driftline.serve.views.hosted import Question

LIMIT_MAX = 1000
"""Hits of one answer."""

BYTES_MAX = 8 << 20
"""Bytes of the documents of one answer: others wait while it is made."""

SNIPPETS_MAX = 2_000_000
"""Characters in which snippets of one answer are looked for: some tenths of a second. Hits behind
them have none."""

FACETS_MAX = 16
"""Facets of one answer."""

KEYWORDS_MAX = 10_000
"""Different keywords of a facet: all of them are told to whoever adds up shards."""


class Page(NamedTuple):
    """Which hits are wanted, and what of them.

    `facets`: the number of a field by its name; `bare`: nothing that is stored, which takes longer
    to read than all else.
    """

    limit: int
    behind: Place | None
    sort: Sort | None
    facets: Mapping[str, int]
    snippets: bool
    bare: bool
    without: str | None


def page_of(question: Question, collection: Collection) -> Page:
    """The page that is asked for."""
    by, sort = _sort(question, collection)
    snippets, bare = _flag(question, "snippets"), _flag(question, "bare")
    if snippets and bare:
        raise Refused("invalid", "snippets are of what is stored, so they cannot be had bare")
    return Page(
        limit_of(question, LIMIT_MAX, 0, required=True),
        _behind(question, by),
        sort,
        _facets(question, collection),
        snippets,
        bare,
        None if question.get("without") is None else text_of(question, "without"),
    )


def query_of(question: Question, collection: Collection) -> Query:
    """The query that is asked for, as the collection understands it."""
    try:
        return parse(text_of(question, "q"), collection)
    except QueryError as error:
        text = str(error).partition("\n")[0]
        details = {"position": error.position, "picture": error.picture}
        raise Refused("query", text, details) from None


def document_of(question: Question, collection: Collection) -> Mapping[str, object] | None:
    """A document of the collection that comes with the question; None: there is none."""
    document = question.get("document")
    if document is not None:
        try:
            collection.check(text_of(question, "id"), document)
        except DocumentRefused as error:
            raise Refused("invalid", str(error)) from None
        assert isinstance(document, dict)
    return document


def text_of(question: Question, name: str) -> str:
    """A text of the question."""
    found = question.get(name)
    if not isinstance(found, str):
        raise _invalid(name, found, "a text")
    return found


def time_of(question: Question, name: str, default: int) -> int:
    """A T of the question: "at": as of which it is; "since": from which on something is asked."""
    found = question.get(name)
    if found is None:
        return default
    if type(found) is not int:
        raise _invalid(name, found, "a time")
    return found


def limit_of(question: Question, most: int, least: int = 1, *, required: bool = False) -> int:
    """How many of something are wanted; by default as many as can be."""
    found = question.get("limit", None if required else most)
    if type(found) is not int or not least <= found <= most:
        raise _invalid("limit", found, f"a whole number from {least} to {most}")
    return found


def _flag(question: Question, name: str) -> bool:
    found = question.get(name, False)
    if not isinstance(found, bool):
        raise _invalid(name, found, "true or false")
    return found


def _sort(question: Question, collection: Collection) -> tuple[ValueField | None, Sort | None]:
    sort = question.get("sort")
    if sort is None:
        return None, None
    if not isinstance(sort, Mapping):
        raise _invalid("sort", sort, "a field, and whether descending")
    name = text_of(sort, "field")
    by = _field(name, collection, collection.values, "to sort by", "sort")
    return by, Sort(by.number, _flag(sort, "descending"))


def _facets(question: Question, collection: Collection) -> Mapping[str, int]:
    names = question.get("facets") or ()
    if not isinstance(names, list | tuple) or len(names) > FACETS_MAX:
        raise _invalid("facets", names, f"a list of at most {FACETS_MAX} fields")
    keywords = [each for each in collection.values if each.kind is Kind.KEYWORD]
    found = {}
    for name in names:
        if not isinstance(name, str):
            raise _invalid("facets", name, "the name of a field")
        by = _field(name, collection, keywords, "with keywords to count", "facet")
        found[name] = by.number
    return found


def _field(
    name: str, collection: Collection, fields: Iterable[ValueField], what: str, parameter: str
) -> ValueField:
    """The one of some fields with a name; `what`: it is wanted for, by which parameter."""
    by_name = {each.name: each for each in fields}
    found = by_name.get(name)
    if found is None:
        there = f"there are {', '.join(by_name)}" if by_name else "there is none in the collection"
        raise Refused(
            "invalid",
            f"{shown(name)} is no field of {collection.name!r} {what}"
            f"{did_you_mean(name[:64], by_name)}; {there}",
            {"parameter": parameter},
        )
    return found


def _behind(question: Question, by: ValueField | None) -> Place | None:
    """The place behind which hits are wanted; `by`: the field by which they are sorted."""
    match question.get("behind"):
        case None:
            return None
        case (score, int(time), value) if 0 <= time <= INFINITY and _is_value(by, value):
            if isinstance(score, int | float) and isfinite(score):
                assert value is None or isinstance(value, str | int | float)
                return Place(float(score), time, value)
    raise _invalid("behind", question["behind"], "score, time and value of a hit")


def _is_value(by: ValueField | None, value: object) -> bool:
    """Whether a version can have this value in a field by which hits are sorted."""
    if by is None or value is None:
        return value is None
    match by.kind:
        case Kind.KEYWORD:
            return isinstance(value, str)
        case Kind.NUMBER:
            return isinstance(value, float) and isfinite(value)
        case Kind.DATE:
            return type(value) is int and DATE_MIN <= value <= DATE_MAX
    assert_never(by.kind)


def _invalid(name: str, found: object, wanted: str) -> Refused:
    if found is None:
        return Refused("invalid", f"{name} is missing: it is {wanted}")
    return Refused("invalid", f"{name} is {shown(found)}; it has to be {wanted}")
