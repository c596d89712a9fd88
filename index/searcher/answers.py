"""Answers about one collection as of a T, in the shapes that travel.

Answers of several shards fit together: hits by `index.search.ranking.order`, totals and facets by
their sums.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from driftline.index.documents.schema import Collection
from driftline.index.documents.values import shown
from driftline.index.query.tree import Query
from driftline.index.search.matching import TooCostly
from driftline.index.search.ranking import Ranked
from driftline.index.search.results import READ_MAX, Explanation, Snippet, like, snippets
from driftline.index.search.shard import Shard
from driftline.index.searcher.questions import (
    BYTES_MAX,
    KEYWORDS_MAX,
    SNIPPETS_MAX,
    Page,
    document_of,
    limit_of,
    page_of,
    query_of,
    text_of,
    time_of,
)
from driftline.index.watches.watches import Watch, Watches
from driftline.serve.errors import Refused
from driftline.serve.views.hosted import Answer, Question

EVENTS_MAX = 10_000
"""Events of one answer."""

WATCHES_MAX = 1000
"""Watches of one answer."""


class Asked(NamedTuple):
    """A question about a collection, as of a time that is retained."""

    question: Question
    collection: Collection
    shard: Shard
    watches: Watches
    time: int


def answer_to(asked: Asked) -> Answer:
    """The answer. Raises Refused, DamagedSegment."""
    what = text_of(asked.question, "what")
    answer = _ANSWERS.get(what)
    if answer is None:
        there = ", ".join(_ANSWERS)
        raise Refused("invalid", f"an index is not asked for {shown(what)}; there are {there}")
    try:
        return {"at": asked.time, **answer(asked)}
    except TooCostly as error:
        raise Refused("costly", str(error), {"leaf": error.leaf}) from None


def _search(asked: Asked) -> Answer:
    page = page_of(asked.question, asked.collection)
    return _found(asked, query_of(asked.question, asked.collection), page)


def _like(asked: Asked) -> Answer:
    question, collection, shard, _, time = asked
    id, page = text_of(question, "id"), page_of(question, collection)
    document = document_of(question, collection)
    if document is None:
        document = json.loads(shard.stored(_ordinal(asked, id)))
        assert isinstance(document, dict)
    query = like(document, collection, shard.statistics, time)
    if query is None:
        return {"total": 0, "hits": (), "facets": {name: {} for name in page.facets}}
    return _found(asked, query, page._replace(without=id))


def _count(asked: Asked) -> Answer:
    query = query_of(asked.question, asked.collection)
    return {"total": asked.shard.count(query, asked.time)}


def _get(asked: Asked) -> Answer:
    shard = asked.shard
    ordinal = _ordinal(asked, text_of(asked.question, "id"))
    return {"time": shard.time_of(ordinal), "stored": shard.stored(ordinal)}


def _explain(asked: Asked) -> Answer:
    query = query_of(asked.question, asked.collection)
    id = text_of(asked.question, "id")
    explanation = asked.shard.explain(query, id, asked.time)
    if explanation is None:
        raise _absent(asked.collection, id)
    return {"score": explanation.score, "tree": _tree(query, explanation)}


def _events(asked: Asked) -> Answer:
    """Events of a watch from `since` on; `upto`: all below it are there, so one goes on from it."""
    question, time = asked.question, asked.time
    limit = limit_of(question, EVENTS_MAX)
    found = asked.watches.events(text_of(question, "watch"), time_of(question, "since", 0), limit)
    events = [
        {"time": event.time, "id": event.id, "event": event.change}
        for event in found
        if event.time < time
    ]
    return {"events": events, "upto": time if len(events) < limit else found[-1].time + 1}


def _watches(asked: Asked) -> Answer:
    """The watches as of now, by their ids; `behind`: the last one that is known."""
    limit, behind = limit_of(asked.question, WATCHES_MAX), ""
    if asked.question.get("behind") is not None:
        behind = text_of(asked.question, "behind")
    watches = asked.watches.watches()
    some = (watch for watch in watches if watch.id > behind)
    return {"total": len(watches), "watches": [_shown(watch) for watch in islice(some, limit)]}


def _watch(asked: Asked) -> Answer:
    """A watch as of now."""
    id = text_of(asked.question, "watch")
    watch = asked.watches.find(id)
    if watch is None:
        name = asked.collection.name
        raise Refused("absent", f"the collection {name!r} has no watch {shown(id)}")
    return _shown(watch)


def _shown(watch: Watch) -> Answer:
    return {"id": watch.id, "query": watch.query, "time": watch.time}


_ANSWERS: Mapping[str, Callable[[Asked], Answer]] = {
    "search": _search,
    "count": _count,
    "get": _get,
    "explain": _explain,
    "like": _like,
    "events": _events,
    "watches": _watches,
    "watch": _watch,
}


def _found(asked: Asked, query: Query, page: Page) -> Answer:
    """The hits of a query."""
    found = asked.shard.search(
        query,
        asked.time,
        page.limit,
        page.behind,
        sort=page.sort,
        facets=tuple(page.facets.values()),
        without=page.without,
    )
    facets = {}
    for name, counts in zip(page.facets, found.facets, strict=True):
        if len(counts) > KEYWORDS_MAX:
            raise Refused(
                "costly",
                f"the field {name!r} has {len(counts):,} different keywords in what is found, and "
                f"the most that are counted is {KEYWORDS_MAX:,}: look for something rarer",
            )
        facets[name] = dict(counts)
    return {
        "total": found.total,
        "hits": tuple(_hits(asked, found.ranked, page, query)),
        "facets": facets,
    }


def _hits(asked: Asked, found: Iterable[Ranked], page: Page, query: Query) -> Iterator[Answer]:
    """Hits, perhaps with snippets for the query. Raises Refused if they are too large together."""
    size = read = 0
    for number, ranked in enumerate(found):
        place, ordinal = ranked.place, ranked.ordinal
        stored = b"" if page.bare else asked.shard.stored(ordinal)
        size += len(stored)
        if size > BYTES_MAX:
            raise Refused(
                "costly",
                f"the first {number + 1} hits have more than {BYTES_MAX >> 20} MiB: ask for fewer",
                {"limit": number},
            )
        pieces: Mapping[str, Snippet] = {}
        if page.snippets and read < SNIPPETS_MAX:
            pieces = snippets(stored, asked.collection, query)
            read += min(len(stored), READ_MAX)
        yield {
            "id": asked.shard.id(ordinal),
            "score": place.score,
            "time": place.time,
            "value": place.value,
            "stored": stored,
            "snippets": {name: piece._asdict() for name, piece in pieces.items()},
        }


def _tree(query: Query, explanation: Explanation) -> Answer:
    """Why a document has its score: the shares of leaves, which add up to it in their order."""
    return {
        "query": str(query),
        "matches": explanation.matches,
        "score": explanation.score,
        "shares": tuple(
            {**share._asdict(), "leaf": str(share.leaf)} for share in explanation.shares
        ),
    }


def _ordinal(asked: Asked, id: str) -> int:
    """The version of a document as of T. Raises Refused."""
    ordinal = asked.shard.find(id, asked.time)
    if ordinal is None:
        raise _absent(asked.collection, id)
    return ordinal


def _absent(collection: Collection, id: str) -> Refused:
    return Refused("absent", f"the collection {collection.name!r} has no document {shown(id)}")
