"""Messages between the gateway and the searchers of an index: questions and answers.

Gateway and searchers use these types, and some of `index.documents.answers`. On the wire they are
mappings, like the messages of every view. `read_question` validates untrusted questions.

>>> question = CountQuestion(collection="documents", q="tea", at=7)
>>> to_message(question)
{'what': 'count', 'collection': 'documents', 'at': 7, 'q': 'tea'}
>>> read_question(to_message(question)) == question
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from driftline.engine.labels import INFINITY
from driftline.index.documents.answers import WatchEvent
from driftline.index.search.ranking import SortPosition, SortValue
from driftline.index.search.results import Snippet
from driftline.serve.errors import ApiError
from driftline.serve.views.hosted import Answer, Question

LIMIT_MAX = 1000
"""Maximum hits per answer."""

EVENTS_MAX = 10_000
"""Maximum events per answer."""

WATCHES_MAX = 1000
"""Maximum watches per answer."""

FACETS_MAX = 16
"""Maximum facets per answer."""


def _tag(name: str) -> str:
    return name.removesuffix("Question").lower()


class IndexQuestion(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="what", tag=_tag
):
    """A question about a collection; `at`: the T to read; None: the newest T of the searcher."""

    collection: str
    at: int | None = None


class SortBy(Struct, frozen=True):
    """Sort order of hits; `field`: name of the sort field."""

    field: str
    descending: bool = False


class SearchQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Request for the first `limit` hits of a query.

    `start_after`: score, label time and sort value of the hit after which the answer starts;
    `facets`: names of keyword fields to count; `snippets`: whether to add snippets to hits;
    `omits_stored`: whether to omit the stored documents; reading them takes most of the time.
    """

    q: str
    limit: Annotated[int, Meta(ge=0, le=LIMIT_MAX)]
    start_after: tuple[float, Annotated[int, Meta(ge=0, le=INFINITY)], SortValue] | None = None
    sort: SortBy | None = None
    facets: Annotated[tuple[str, ...], Meta(max_length=FACETS_MAX)] = ()
    snippets: bool = False
    omits_stored: bool = False


class CountQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Request for the number of documents that match a query."""

    q: str


class GetQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Request for a document."""

    id: str


class ExplainQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Request for the explanation of a document's score; `id`: the document."""

    q: str
    id: str


class EventsQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Request for the first `limit` events of a watch from the time `since` on, and below `at`."""

    watch: str
    since: int = 0
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = EVENTS_MAX


class WatchesQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Request for the first `limit` watches whose ids are larger than `start_after`."""

    start_after: str = ""
    limit: Annotated[int, Meta(ge=1, le=WATCHES_MAX)] = WATCHES_MAX


class WatchQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Request for a current watch; `watch`: its id."""

    watch: str


AnyQuestion = (
    SearchQuestion
    | CountQuestion
    | GetQuestion
    | ExplainQuestion
    | EventsQuestion
    | WatchesQuestion
    | WatchQuestion
)


class FoundHit(Struct, frozen=True):
    """A hit; `time`: label time of the version; `value`: sort value, None without a sort.

    `stored`: the document as JSON, empty if the question omits it; `snippets`: by field name.
    """

    id: str
    score: float
    time: int
    value: SortValue
    stored: bytes
    snippets: dict[str, Snippet]

    @property
    def sort_position(self) -> SortPosition:
        """Position in the order of results."""
        return SortPosition(self.score, self.time, self.value)


class FoundHits(Struct, frozen=True):
    """Hits of one shard, or merged hits of all shards; `total`: number of matches.

    `facets`: field name -> keyword -> number of matches with the keyword.
    """

    total: int
    hits: list[FoundHit]
    facets: dict[str, dict[str, int]]


class FoundTotal(Struct, frozen=True):
    """Number of matches in a shard."""

    total: int


class StoredDocument(Struct, frozen=True):
    """A document as canonical JSON; `time`: label time of the version."""

    time: int
    stored: bytes


class FoundEvents(Struct, frozen=True):
    """All events of a watch from `since` on and below `upto`; the next read starts at `upto`."""

    events: list[WatchEvent]
    upto: int


def to_message(message: Struct) -> Mapping[str, object]:
    """Convert a question or an answer to its wire form."""
    mapping: Answer = msgspec.to_builtins(message, builtin_types=(bytes,))
    return mapping


def read_question(question: Question) -> AnyQuestion:
    """Decode a question. Raises ApiError "invalid"."""
    try:
        decoded: AnyQuestion = msgspec.convert(question, AnyQuestion)
        return decoded
    except msgspec.ValidationError as error:
        raise ApiError("invalid", f"this is not a question to an index: {error}") from None
