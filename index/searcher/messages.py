"""Messages between the gateway and the searchers of an index: questions, and their answers.

Both ends use these types; in between they are mappings, as every view takes and gives them. What
comes from a client is checked when a question is read: raises Refused, "invalid".

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
from driftline.index.documents.answers import ExplainedQuery
from driftline.index.search.places import SortPosition, SortValue
from driftline.serve.errors import ApiError
from driftline.serve.views.hosted import Answer, Question

LIMIT_MAX = 1000
"""Hits of one answer."""

EVENTS_MAX = 10_000
"""Events of one answer."""

WATCHES_MAX = 1000
"""Watches of one answer."""

FACETS_MAX = 16
"""Facets of one answer."""


def _tag(name: str) -> str:
    return name.removesuffix("Question").lower()


class IndexQuestion(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="what", tag=_tag
):
    """A question about a collection; `at`: as of this T, None: the newest of the searcher."""

    collection: str
    at: int | None = None


class SortBy(Struct, frozen=True):
    """The name of the field by which hits are sorted."""

    field: str
    descending: bool = False


class SearchQuestion(IndexQuestion, frozen=True, kw_only=True):
    """The first `limit` hits of a query, behind the hit with a score, a label time and a value.

    `bare`: nothing that is stored is wanted, which takes longer to read than all else.
    """

    q: str
    limit: Annotated[int, Meta(ge=0, le=LIMIT_MAX)]
    behind: tuple[float, Annotated[int, Meta(ge=0, le=INFINITY)], SortValue] | None = None
    sort: SortBy | None = None
    facets: Annotated[tuple[str, ...], Meta(max_length=FACETS_MAX)] = ()
    snippets: bool = False
    bare: bool = False


class CountQuestion(IndexQuestion, frozen=True, kw_only=True):
    """The number of documents that a query finds."""

    q: str


class GetQuestion(IndexQuestion, frozen=True, kw_only=True):
    """A document."""

    id: str


class ExplainQuestion(IndexQuestion, frozen=True, kw_only=True):
    """Why a document has its score."""

    q: str
    id: str


class EventsQuestion(IndexQuestion, frozen=True, kw_only=True):
    """The first events of a watch, from a T on."""

    watch: str
    since: int = 0
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = EVENTS_MAX


class WatchesQuestion(IndexQuestion, frozen=True, kw_only=True):
    """The first watches whose ids come after one, as of now."""

    behind: str = ""
    limit: Annotated[int, Meta(ge=1, le=WATCHES_MAX)] = WATCHES_MAX


class WatchQuestion(IndexQuestion, frozen=True, kw_only=True):
    """A watch, as of now."""

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


class Piece(Struct, frozen=True):
    """A piece of a text, as `index.search.results.Snippet`."""

    text: str
    start: int
    more: bool
    marks: tuple[tuple[int, int], ...]


class FoundHit(Struct, frozen=True):
    """A document that was found; `time`: its label time; `value`: by which hits are sorted."""

    id: str
    score: float
    time: int
    value: SortValue
    stored: bytes
    snippets: dict[str, Piece]

    @property
    def place(self) -> SortPosition:
        """Where it is in the order of results."""
        return SortPosition(self.score, self.time, self.value)


class FoundHits(Struct, frozen=True):
    """What a shard has found, or all of them; `facets`: how often each value is there."""

    total: int
    hits: list[FoundHit]
    facets: dict[str, dict[str, int]]


class FoundTotal(Struct, frozen=True):
    """How many documents a shard has found."""

    total: int


class StoredDocument(Struct, frozen=True):
    """A document as it is stored; `time`: its label time."""

    time: int
    stored: bytes


class FoundExplanation(Struct, frozen=True):
    """Why a document has its score."""

    score: float
    tree: ExplainedQuery


class FoundEvent(Struct, frozen=True):
    """A version of a document that "begins" or "ceases" to match; `time`: its label time."""

    time: int
    id: str
    event: str


class FoundEvents(Struct, frozen=True):
    """Events up to a T: all below it are there, so one goes on from it."""

    events: list[FoundEvent]
    upto: int


class StoredWatch(Struct, frozen=True):
    """A stored query; `time`: its label time."""

    id: str
    query: str
    time: int


class FoundWatches(Struct, frozen=True):
    """Some of all stored queries."""

    total: int
    watches: list[StoredWatch]


def to_message(message: Struct) -> Mapping[str, object]:
    """A question or an answer as it travels."""
    found: Answer = msgspec.to_builtins(message, builtin_types=(bytes,))
    return found


def read_question(question: Question) -> AnyQuestion:
    """Decode a question. Raises Refused."""
    try:
        found: AnyQuestion = msgspec.convert(question, AnyQuestion)
        return found
    except msgspec.ValidationError as error:
        raise ApiError("invalid", f"this is no question to an index: {error}") from None
