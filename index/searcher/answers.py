"""Answers of one shard to questions about a collection, as of a time T.

Exception: `WatchQuestion` and `WatchesQuestion` read the current watches, whatever T is.

The gateway combines the answers of all shards: it merges hits by `index.search.ranking.sort_key`,
and adds up totals and facets.
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

SNIPPET_BYTES_MAX = 2_000_000
"""Total size of documents, in bytes, after which the further hits of an answer have no snippets.

A document counts as at most READ_MAX bytes. Analysing this total takes some tenths of a second.
"""

KEYWORDS_MAX = 10_000
"""Largest number of distinct keywords of a facet, as a shard sends the counts of all of them."""


class QuestionContext(NamedTuple):
    """A question, the collection that it is about, and the time T to read.

    Precondition: all outputs below `time` are applied, and reads as of `time` are retained.
    """

    question: AnyQuestion
    collection: Collection
    shard: Shard
    watches: WatchIndex
    time: int
    pause: PauseHook = no_pause


def answer_to(context: QuestionContext) -> Struct:
    """Answer a question. Raises ApiError, DamagedSegment."""
    try:
        return _answer_to(context)
    except QueryTooCostly as error:
        raise ApiError("costly", str(error), {"leaf": error.leaf}) from None


def _answer_to(context: QuestionContext) -> Struct:
    question, collection, shard, watches, time, pause = context
    match question:
        case SearchQuestion():
            return _search(context, question)
        case CountQuestion(q=q):
            return FoundTotal(shard.count(parse_query(q, collection), time, pause))
        case GetQuestion(id=id):
            ordinal = shard.find(id, time)
            if ordinal is None:
                raise _absent(collection, id)
            return StoredDocument(shard.time_of(ordinal), shard.stored(ordinal))
        case ExplainQuestion(q=q, id=id):
            return _explain(context, q, id)
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
            entries = watches.watches()
            page = (watch for watch in entries if watch.id > start_after)
            return WatchList(len(entries), list(map(_describe, islice(page, limit))))
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


def _explain(context: QuestionContext, q: str, id: str) -> ExplainedQuery:
    """Explain a document's score: how much each scoring leaf of the query adds to it.

    Raises ApiError, QueryTooCostly.
    """
    query = parse_query(q, context.collection)
    explained = context.shard.explain(query, id, context.time)
    if explained is None:
        raise _absent(context.collection, id)
    return explained


# Searches.


def _search(context: QuestionContext, question: SearchQuestion) -> FoundHits:
    """Search the shard. Raises ApiError, QueryTooCostly, DamagedSegment."""
    collection = context.collection
    if question.snippets and question.omits_stored:
        raise ApiError("invalid", "snippets and omits_stored exclude each other; leave one out")
    query = parse_query(question.q, collection)
    sort_field: ValueField | None = None
    sort: Sort | None = None
    if question.sort is not None:
        name, fields = question.sort.field, collection.value_fields
        sort_field = _field(name, collection, fields, "to sort by", "sort")
        sort = Sort(sort_field.number, question.sort.descending)
    keyword_fields = [each for each in collection.value_fields if each.kind is Kind.KEYWORD]
    facet_fields = [
        _field(name, collection, keyword_fields, "with keywords to count", "facet").number
        for name in question.facets
    ]
    start_after = _start_position(question, sort_field)
    answer = context.shard.search(
        query,
        context.time,
        question.limit,
        start_after,
        sort=sort,
        facets=facet_fields,
        pause=context.pause,
    )
    facets = {}
    for name, counts in zip(question.facets, answer.facets, strict=True):
        if len(counts) > KEYWORDS_MAX:
            raise ApiError(
                "costly",
                f"the field {name!r} has {len(counts):,} different keywords in the matches, and at "
                f"most {KEYWORDS_MAX:,} can be counted: make the query more specific",
            )
        facets[name] = dict(counts)
    return FoundHits(answer.total, list(_hits(context, answer.ranked, question, query)), facets)


def _hits(
    context: QuestionContext, matches: Iterable[Ranked], question: SearchQuestion, query: Query
) -> Iterator[FoundHit]:
    """Yield hits, with snippets if requested. Raises ApiError if their documents are too large."""
    size = analysed = 0
    for number, match in enumerate(matches):
        context.pause()
        position, ordinal = match.sort_position, match.ordinal
        stored = b"" if question.omits_stored else context.shard.stored(ordinal)
        size += len(stored)
        if size > BYTES_MAX:
            raise ApiError(
                "costly",
                f"the first {number + 1} hits have more than {BYTES_MAX >> 20} MiB: use a smaller "
                "limit",
                {"limit": number},
            )
        by_field: dict[str, Snippet] = {}
        if question.snippets and analysed < SNIPPET_BYTES_MAX:
            by_field = snippets(stored, context.collection, query)
            analysed += min(len(stored), READ_MAX)
        yield FoundHit(
            context.shard.id(ordinal),
            position.score,
            position.time,
            position.value,
            stored,
            by_field,
        )


def _field(
    name: str, collection: Collection, fields: Iterable[ValueField], purpose: str, parameter: str
) -> ValueField:
    """Return the field of `fields` that has this name. Raises ApiError.

    For the error: `purpose`: what the field is for; `parameter`: the HTTP parameter that names it.
    """
    by_name = {each.name: each for each in fields}
    field = by_name.get(name)
    if field is None:
        names = f"its fields for this are {', '.join(by_name)}" if by_name else "it has none"
        raise ApiError(
            "invalid",
            f"{collection.name!r} has no field {short_repr(name)} {purpose}"
            f"{did_you_mean(name[:64], by_name)}; {names}",
            {"parameter": parameter},
        )
    return field


def _start_position(question: SearchQuestion, sort_field: ValueField | None) -> SortPosition | None:
    """Return the position after which hits start; None: at the first hit. Raises ApiError."""
    if question.start_after is None:
        return None
    score, time, value = question.start_after
    if not (isfinite(score) and _is_sort_value(sort_field, value)):
        raise ApiError("invalid", "start_after is not the score, the time and the value of a hit")
    return SortPosition(score, time, value)


def _is_sort_value(sort_field: ValueField | None, value: object) -> bool:
    """Return whether a version can have this value in the sort field."""
    if sort_field is None or value is None:
        return value is None
    match sort_field.kind:
        case Kind.KEYWORD:
            return isinstance(value, str)
        case Kind.NUMBER:
            return isinstance(value, float) and isfinite(value)
        case Kind.DATE:
            return type(value) is int and DATE_MIN <= value <= DATE_MAX
    assert_never(sort_field.kind)
