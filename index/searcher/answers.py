"""Answers about one collection as of a T.

Answers of several shards can be combined: hits are merged by
`index.search.ranking.sort_key`, totals and facets are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import isfinite
from typing import NamedTuple, assert_never

from msgspec import Struct

from driftline.engine.texts import did_you_mean
from driftline.index.documents.answers import ExplainedQuery, Watch, WatchEvent, WatchList
from driftline.index.documents.schema import Collection, ValueField
from driftline.index.documents.values import DATE_MAX, DATE_MIN, Kind, short_repr
from driftline.index.query.parsing import QueryError, parse
from driftline.index.query.tree import Query
from driftline.index.search.matching import QueryTooCostly
from driftline.index.search.ranking import Ranked, Sort, SortPosition
from driftline.index.search.results import READ_MAX, Snippet, snippets
from driftline.index.search.shard import Shard
from driftline.index.search.watches import WatchEntry, WatchIndex
from driftline.index.searcher import messages
from driftline.index.searcher.messages import (
    AnyQuestion,
    CountQuestion,
    EventsQuestion,
    ExplainQuestion,
    FoundEvents,
    FoundHit,
    FoundHits,
    FoundTotal,
    GetQuestion,
    SearchQuestion,
    StoredDocument,
)
from driftline.serve.errors import ApiError
from driftline.serve.views.hosted import PauseHook, no_pause
from driftline.serve.views.tokens import token_of

BYTES_MAX = 8 << 20
"""Largest total size of the documents in one answer, in bytes."""

SNIPPET_CHARS_MAX = 2_000_000
"""Characters that are analysed for the snippets of one answer: some tenths of a second.

Further hits have no snippets.
"""

KEYWORDS_MAX = 10_000
"""Largest number of distinct keywords of a facet; a shard sends the counts of all of them."""


class QuestionContext(NamedTuple):
    """A question, the collection that it is about, and the retained time to read."""

    question: AnyQuestion
    collection: Collection
    shard: Shard
    watches: WatchIndex
    time: int
    pause: PauseHook = no_pause


def answer_to(asked: QuestionContext) -> Struct:
    """Answer a question. Raises ApiError, DamagedSegment."""
    try:
        return _answer_to(asked)
    except QueryTooCostly as error:
        raise ApiError("costly", str(error), {"leaf": error.leaf}) from None


def _answer_to(asked: QuestionContext) -> Struct:
    question, collection, shard, watches, time, pause = asked
    match question:
        case SearchQuestion():
            return _search(asked, question)
        case CountQuestion(q=q):
            return FoundTotal(shard.count(parse_query(q, collection), time, pause))
        case GetQuestion(id=id):
            ordinal = shard.find(id, time)
            if ordinal is None:
                raise _absent(collection, id)
            return StoredDocument(shard.time_of(ordinal), shard.stored(ordinal))
        case ExplainQuestion(q=q, id=id):
            return _explain(asked, q, id)
        case EventsQuestion(watch=id, since=since, limit=limit):
            found = watches.events(id, since, limit)
            events = [
                WatchEvent(token_of(event.time + 1), event.id, event.change, id)
                for event in found
                if event.time < time
            ]
            upto = time if len(events) < limit else found[-1].time + 1
            return FoundEvents(events, upto)
        case messages.WatchesQuestion(start_after=start_after, limit=limit):
            there = watches.watches()
            some = (watch for watch in there if watch.id > start_after)
            return WatchList(len(there), list(map(_describe, islice(some, limit))))
        case messages.WatchQuestion(watch=id):
            watch = watches.find(id)
            if watch is None:
                raise ApiError(
                    "absent", f"the collection {collection.name!r} has no watch {short_repr(id)}"
                )
            return _describe(watch)
    assert_never(question)


def _describe(watch: WatchEntry) -> Watch:
    return Watch(watch.id, watch.query or "", token_of(watch.time + 1))


def parse_query(text: str, collection: Collection) -> Query:
    """Parse the query of a question for the collection. Raises ApiError."""
    try:
        return parse(text, collection)
    except QueryError as error:
        problem = str(error).partition("\n")[0]
        details = {"position": error.position, "picture": error.picture}
        raise ApiError("query", problem, details) from None


def _absent(collection: Collection, id: str) -> ApiError:
    return ApiError(
        "absent", f"the collection {collection.name!r} has no document {short_repr(id)}"
    )


def _explain(asked: QuestionContext, q: str, id: str) -> ExplainedQuery:
    """Explain a document's score as a sum of shares of leaves. Raises ApiError."""
    query = parse_query(q, asked.collection)
    found = asked.shard.explain(query, id, asked.time)
    if found is None:
        raise _absent(asked.collection, id)
    return found


# Searches.


def _search(asked: QuestionContext, question: SearchQuestion) -> FoundHits:
    collection = asked.collection
    if question.snippets and question.omits_stored:
        raise ApiError("invalid", "snippets are of what is stored, so they cannot be had bare")
    query = parse_query(question.q, collection)
    by: ValueField | None = None
    sort: Sort | None = None
    if question.sort is not None:
        name, fields = question.sort.field, collection.values
        by = _field(name, collection, fields, "to sort by", "sort")
        sort = Sort(by.number, question.sort.descending)
    keywords = [each for each in collection.values if each.kind is Kind.KEYWORD]
    numbers = [
        _field(name, collection, keywords, "with keywords to count", "facet").number
        for name in question.facets
    ]
    start_after = _start_position(question, by)
    found = asked.shard.search(
        query, asked.time, question.limit, start_after, sort=sort, facets=numbers, pause=asked.pause
    )
    facets = {}
    for name, counts in zip(question.facets, found.facets, strict=True):
        if len(counts) > KEYWORDS_MAX:
            raise ApiError(
                "costly",
                f"the field {name!r} has {len(counts):,} different keywords in what is found, and "
                f"the most that are counted is {KEYWORDS_MAX:,}: look for something rarer",
            )
        facets[name] = dict(counts)
    return FoundHits(found.total, list(_hits(asked, found.ranked, question, query)), facets)


def _hits(
    asked: QuestionContext, found: Iterable[Ranked], question: SearchQuestion, query: Query
) -> Iterator[FoundHit]:
    """Yield hits, with snippets if requested. Raises ApiError if their total size is too large."""
    size = read = 0
    for number, ranked in enumerate(found):
        asked.pause()
        place, ordinal = ranked.sort_position, ranked.ordinal
        stored = b"" if question.omits_stored else asked.shard.stored(ordinal)
        size += len(stored)
        if size > BYTES_MAX:
            raise ApiError(
                "costly",
                f"the first {number + 1} hits have more than {BYTES_MAX >> 20} MiB: ask for fewer",
                {"limit": number},
            )
        pieces: dict[str, Snippet] = {}
        if question.snippets and read < SNIPPET_CHARS_MAX:
            pieces = snippets(stored, asked.collection, query)
            read += min(len(stored), READ_MAX)
        yield FoundHit(
            asked.shard.id(ordinal),
            place.score,
            place.time,
            place.value,
            stored,
            pieces,
        )


def _field(
    name: str, collection: Collection, fields: Iterable[ValueField], what: str, parameter: str
) -> ValueField:
    """Return the field with a name; `what`: its purpose, for the error. Raises ApiError."""
    by_name = {each.name: each for each in fields}
    found = by_name.get(name)
    if found is None:
        there = f"there are {', '.join(by_name)}" if by_name else "there is none in the collection"
        raise ApiError(
            "invalid",
            f"{short_repr(name)} is not a field of {collection.name!r} {what}"
            f"{did_you_mean(name[:64], by_name)}; {there}",
            {"parameter": parameter},
        )
    return found


def _start_position(question: SearchQuestion, by: ValueField | None) -> SortPosition | None:
    """Return the position after which hits start; `by`: the sort field. Raises ApiError."""
    if question.start_after is None:
        return None
    score, time, value = question.start_after
    if not (isfinite(score) and _is_value(by, value)):
        raise ApiError("invalid", "start_after is not the score, the time and the value of a hit")
    return SortPosition(score, time, value)


def _is_value(by: ValueField | None, value: object) -> bool:
    """Return whether a version can have this value in the sort field."""
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
