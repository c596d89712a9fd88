"""Reads of an index: search, count, explain and documents, each as of a T.

The hits of all shards are merged into one list. With the cursor in an answer, a client requests the
next page of the list, as of the same T.

>>> cursor = Cursor(7, 3, 0.5, 2, None)
>>> text = encode(cursor, b"documents cat")
>>> decode(text, b"documents cat") == cursor
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from driftline.engine.labels import INFINITY
from driftline.engine.texts import did_you_mean
from driftline.engine.wire.codec import pack
from driftline.index.documents import answers
from driftline.index.documents.answers import ExplainedQuery, FacetValue
from driftline.index.documents.schema import Collection
from driftline.index.http import schemas
from driftline.index.http.context import ID, Index, json_of
from driftline.index.query.parsing import EXPANDED_MAX
from driftline.index.query.parsing import LENGTH_MAX as QUERY_LENGTH_MAX
from driftline.index.search.ranking import Sort, sort_key
from driftline.index.search.results import Snippet
from driftline.index.searcher.answers import parse_query
from driftline.index.searcher.messages import (
    LIMIT_MAX,
    CountQuestion,
    ExplainQuestion,
    FoundHit,
    FoundHits,
    FoundTotal,
    GetQuestion,
    SearchQuestion,
    SortBy,
    StoredDocument,
)
from driftline.serve.errors import ApiError
from driftline.serve.http.content import dumps, json_answer
from driftline.serve.http.operations import Call, Operation
from driftline.serve.http.parameters import (
    AFTER,
    AT,
    Parameter,
    RepeatedParameter,
    flag,
    integer_between,
    text_up_to,
)
from driftline.serve.http.reads import cursor_error, decode_cursor, encode_cursor
from driftline.serve.views.tokens import token_of

SNIPPETS_MAX = 100
"""Maximum hits per answer with snippets."""
FACET_VALUES_MAX = 100
"""Maximum values per facet in an answer: the most frequent values."""

CURSOR_LENGTH_MAX = 4096
"""Largest length of a cursor, in characters. A cursor may contain a keyword of 1024 bytes."""

_CURSOR_SCOPE = "q, sort and collection"
"""Text for errors: names of the parameters that a request with a cursor must repeat."""

Q = Parameter[str](
    "q",
    text_up_to(QUERY_LENGTH_MAX),
    "",
    'Examples: tea "green tea" -black tea* te~ title:tea (a OR b) year:[1990 TO 2000].',
    {"type": "string", "maxLength": QUERY_LENGTH_MAX},
    required=True,
    example="tea",
)
LIMIT = Parameter[int](
    "limit",
    integer_between(1, LIMIT_MAX),
    10,
    "Maximum number of hits; with snippets at most 100.",
    {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": 10},
)
CURSOR = Parameter[str](
    "cursor",
    text_up_to(CURSOR_LENGTH_MAX),
    "",
    "The cursor of the previous page: requests the next page, as of the same T.",
    {"type": "string", "maxLength": CURSOR_LENGTH_MAX},
)
SORT = Parameter[str](
    "sort",
    text_up_to(200),
    "",
    "A keyword, number or date field that orders the hits; -field: descending; default: by score.",
    {"type": "string"},
)
FACET = RepeatedParameter(
    "facet", "A keyword field whose values are counted in all matching documents."
)
FIELD = RepeatedParameter("field", "A document field to return with each hit.")
SNIPPETS = Parameter[bool](
    "snippets",
    flag,
    True,
    "Whether hits have a snippet: HTML, in which <mark> is the only markup.",
    {"type": "integer", "enum": [0, 1], "default": 1},
)


def read_operations(index: Index) -> list[Operation]:
    """Return all read operations."""
    reads = _ReadHandlers(index)
    error_statuses = 404, 410, 503  # HTTP statuses
    query_error_statuses = *error_statuses, 422
    times = AT, AFTER
    return [  # requests are matched in this order: the most frequent operations are first
        Operation(
            "GET", "/search", reads.search, "search", "Search documents.",
            (Q, LIMIT, CURSOR, SORT, FACET, FIELD, SNIPPETS, *times),
            answer=schemas.SEARCH, error_statuses=query_error_statuses, tag="search",
        ),
        Operation(
            "GET", "/documents/{id:path}", reads.get, "get_document", "A document.",
            (ID, *times), answer=schemas.DOCUMENT_ANSWER, error_statuses=error_statuses,
            tag="documents",
        ),
        Operation(
            "GET", "/count", reads.count, "count", "How many documents a query finds.",
            (Q, *times), answer=schemas.COUNT, error_statuses=query_error_statuses, tag="search",
        ),
        Operation(
            "GET", "/explain", reads.explain, "explain", "Why a document has its score.",
            (Q, EXPLAINED_ID, *times), answer=schemas.EXPLAINED,
            error_statuses=query_error_statuses,
            tag="search",
        ),
    ]  # fmt: skip


EXPLAINED_ID = Parameter[str](
    "id", ID.read, "", "The id of the document.", ID.schema, required=True, example="1"
)


class _ReadHandlers:
    def __init__(self, index: Index) -> None:
        self._index = index

    async def search(self, call: Call) -> Response:
        collection = self._checked_collection(call)
        _check_fields(call, collection)
        sort, field = _sort(call[SORT])
        cursor = decode(call[CURSOR], _list_identity(call, collection)) if call[CURSOR] else None
        if cursor is None:
            time = self._index.as_of(call)
        elif call[AT] not in (None, cursor.time):
            raise ApiError("invalid", "`at` is not the T of the cursor: leave `at` out")
        else:
            time = cursor.time
        if call[SNIPPETS] and call[LIMIT] > SNIPPETS_MAX:
            raise ApiError(
                "invalid",
                f"at most {SNIPPETS_MAX} hits can have snippets: set snippets=0, or a smaller "
                "limit",
                {"parameter": "limit"},
            )
        question = SearchQuestion(
            collection=collection.name,
            at=time,
            q=call[Q],
            limit=call[LIMIT],
            start_after=None if cursor is None else (cursor.score, cursor.label_time, cursor.value),
            sort=None if sort is None else SortBy(field, sort.descending),
            facets=tuple(dict.fromkeys(call[FACET])),
            snippets=call[SNIPPETS],
            omits_stored=not (call[SNIPPETS] or call[FIELD]),
        )
        merged = merge_answers(await self._index.ask(call, question, FoundHits), call[LIMIT], sort)
        seen, next_cursor = (0 if cursor is None else cursor.seen) + len(merged.hits), None
        if merged.hits and seen < merged.total:
            last = merged.hits[-1].sort_position
            position = Cursor(time, seen, last.score, last.time, last.value)
            next_cursor = encode(position, _list_identity(call, collection))
        hits = tuple(to_hit(hit, call[FIELD], call[SNIPPETS]) for hit in merged.hits)
        facets = {
            name: tuple(FacetValue(*each) for each in values.items())
            for name, values in merged.facets.items()
        }
        return json_of(
            answers.SearchResult(token_of(time), merged.total, hits, next_cursor, facets)
        )

    async def count(self, call: Call) -> Response:
        collection, time = self._checked_collection(call), self._index.as_of(call)
        question = CountQuestion(collection=collection.name, q=call[Q], at=time)
        total = sum(each.total for each in await self._index.ask(call, question, FoundTotal))
        return json_of(answers.CountAnswer(token_of(time), total))

    async def explain(self, call: Call) -> Response:
        collection, time = self._checked_collection(call), self._index.as_of(call)
        id = call[EXPLAINED_ID]
        question = ExplainQuestion(collection=collection.name, q=call[Q], id=id, at=time)
        explanation = await self._index.ask_first(call, question, ExplainedQuery)
        return json_of(answers.Explained(token_of(time), id, explanation.score, explanation))

    async def get(self, call: Call) -> Response:
        collection, time = self._index.collection(call), self._index.as_of(call)
        question = GetQuestion(collection=collection.name, id=call[ID], at=time)
        document = await self._index.ask_first(call, question, StoredDocument)
        label = token_of(document.time + 1)
        body = dumps({"id": call[ID], "label": label, "at": token_of(time)})
        return json_answer(
            body[:-1] + b',"document":' + document.stored + b"}", {"ETag": f'"{label}"'}
        )

    def _checked_collection(self, call: Call) -> Collection:
        """Return the collection of a request with a query; reject a query that is too costly.

        A query that may have too many words with * or ~ is parsed here, so that the gateway can
        reject it without waiting for a searcher. Raises ApiError.
        """
        collection = self._index.collection(call)
        if call[Q].count("*") + call[Q].count("~") > EXPANDED_MAX:
            parse_query(call[Q], collection)
        return collection


def _list_identity(call: Call, collection: Collection) -> bytes:
    """Return bytes that identify the query, sort order and collection of a cursor."""
    return pack((collection.name, collection.fingerprint(), call[Q], call[SORT]))


def _check_fields(call: Call, collection: Collection) -> None:
    """Raise ApiError for a field that no document of the collection can have."""
    for name in call[FIELD]:
        if name not in collection.by_name and collection.others == "refused":
            names = ", ".join(collection.by_name)
            raise ApiError(
                "invalid",
                f"the collection {collection.name!r} has no field {name[:64]!r}"
                f"{did_you_mean(name[:64], collection.by_name)}; it has {names}",
                {"parameter": "field"},
            )


def _sort(text: str) -> tuple[Sort | None, str]:
    """Parse `sort=`; return the sort order and the field name.

    The field number in the sort order is a placeholder: callers use only the direction.
    """
    if not text:
        return None, ""
    descending = text.startswith("-")
    return Sort(0, descending), text[descending:]


def merge_answers(answers: Iterable[FoundHits], limit: int, sort: Sort | None = None) -> FoundHits:
    """Merge the answers of several shards: the first `limit` hits, the total and the facets.

    `sort`: the order of the hits; None: by descending score.
    """
    total = 0
    hits: list[FoundHit] = []
    counts: dict[str, Counter[str]] = {}
    for answer in answers:
        total += answer.total
        hits += answer.hits
        for name, shard_counts in answer.facets.items():
            counts.setdefault(name, Counter()).update(shard_counts)
    # The hits of each shard are already sorted, so Timsort only merges them.
    hits.sort(key=lambda hit: sort_key(hit.sort_position, sort))
    facets = {name: _top_values(each) for name, each in counts.items()}
    return FoundHits(total, hits[:limit], facets)


def to_hit(hit: FoundHit, fields: Sequence[str], with_snippet: bool) -> answers.Hit:
    """Convert a hit to the form that clients receive; `fields`: names of the fields to include."""
    snippet = snippet_html(hit.snippets) if with_snippet else ""
    values: dict[str, msgspec.Raw] = {}
    if fields:
        document = msgspec.json.decode(hit.stored, type=dict[str, msgspec.Raw])
        values = {name: document[name] for name in fields if name in document}
    return answers.Hit(hit.id, hit.score, token_of(hit.time + 1), snippet, values)


def snippet_html(by_field: Mapping[str, Snippet]) -> str:
    """Return the best snippet of a document as HTML, in which `<mark>` is the only markup.

    The best snippet has the most marks. The longest text breaks a tie, then the order of fields.
    """
    if not by_field:
        return ""
    best = max(by_field.values(), key=lambda each: (len(each.marks), len(each.text)))
    html: list[str] = ["…"] if best.start else []
    at = 0
    for start, end in best.marks:
        html += (escape(best.text[at:start]), "<mark>", escape(best.text[start:end]), "</mark>")
        at = end
    html.append(escape(best.text[at:]))
    return "".join((*html, "…" if best.more else ""))


def _top_values(counts: Counter[str]) -> dict[str, int]:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return dict(ordered[:FACET_VALUES_MAX])


class Cursor(NamedTuple):
    """Position after a page of results.

    `time`: T of the results; `seen`: number of hits on this and all previous pages; `score`,
    `label_time`, `value`: score, label time and sort value of the last hit.
    """

    time: int
    seen: int
    score: float
    label_time: int
    value: str | int | float | None


def encode(cursor: Cursor, query: bytes) -> str:
    """Encode a cursor; `query`: identity of the list that it continues (`_list_identity`)."""
    return encode_cursor(tuple(cursor), query)


def decode(text: str, query: bytes) -> Cursor:
    """Decode a cursor. Raises ApiError if the text is invalid, or is a cursor of another query."""
    match decode_cursor(text, query, _CURSOR_SCOPE):
        case (
            int(time),
            int(seen),
            float(score),
            int(label_time),
            (None | str() | int() | float()) as value,
        ) if 0 <= time <= INFINITY and isfinite(score):
            return Cursor(time, seen, score, label_time, value)
    raise cursor_error(_CURSOR_SCOPE)
