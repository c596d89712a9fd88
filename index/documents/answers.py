"""HTTP answers of an index, as the server sends them and clients read them.

The OpenAPI description of the service (`GET /openapi.json`) is generated from these types and
contains their docstrings. A label or T is a string of fixed length; the strings sort in the order
of the writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

Label = Annotated[str, Meta(extra_json_schema={"$ref": "#/components/schemas/Label"})]
"""The label of a write, or a T."""

Id = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
NonNegative = Annotated[int, Meta(extra_json_schema={"minimum": 0})]


class Written(Struct, frozen=True, omit_defaults=True):
    """A durable write; `label`: its position in the order of all writes.

    `repeated`: an earlier write had the same idempotency key, and `label` is the label of the
    earlier write; `absent`: there was no document to delete.
    """

    id: Id
    label: Label
    repeated: bool = False
    absent: bool = False


class Document(Struct, frozen=True):
    """A document as of `at`; `label`: label of the write that created this version of it."""

    id: Id
    label: Label
    at: Label
    document: Mapping[str, object]


class Hit(Struct, frozen=True, omit_defaults=True):
    """A matching document.

    `label`: label of the document's current version; `snippet`: HTML, in which `<mark>` is the
    only markup; `fields`: the requested fields that the document has.
    """

    id: Id
    score: float
    label: Label
    snippet: str = ""
    fields: Mapping[str, object] = {}


class FacetValue(Struct, frozen=True):
    """A value of a field, and the number of matching documents that have it."""

    value: str
    count: NonNegative


class SearchResult(Struct, frozen=True, omit_defaults=True):
    """A page of search results as of `at`; `total`: number of matches on all pages.

    `cursor`: token to request the next page as of the same `at`; null: this page is the last one.
    `facets`: for each requested field, the counts of its values.
    """

    at: Label
    total: NonNegative
    hits: tuple[Hit, ...]
    cursor: str | None
    facets: Mapping[str, tuple[FacetValue, ...]] = {}


class CountAnswer(Struct, frozen=True):
    """The number of documents that match a query as of `at`."""

    at: Label
    total: NonNegative


class ScoreShare(Struct, frozen=True):
    """The amount that a leaf of the query, such as a word or a phrase, adds to a score.

    `frequency`: occurrences of the leaf in its field of the document; `length`: number of words in
    this field. Over all documents of the collection as of `at`: `documents`: number of documents
    that have the field; `average`: average length of the field in these; `document_frequencies`:
    for each word of the leaf, number of documents with the word in the field. `weight`: weight of
    the field in the schema; `idf`: sum of the inverse document frequencies of the words. For prefix
    and fuzzy leaves, `document_frequencies` is empty and `idf` is 1.
    """

    leaf: str
    score: float
    frequency: NonNegative
    length: NonNegative
    average: float
    documents: NonNegative
    document_frequencies: Sequence[int]
    weight: float
    idf: float


class ExplainedQuery(Struct, frozen=True):
    """The parsed query, whether it matches the document, and the shares of its leaves.

    The shares add up to the score.
    """

    query: str
    matches: bool
    score: float
    shares: Sequence[ScoreShare]


class Explained(Struct, frozen=True):
    """The explanation of a document's score as of `at`."""

    at: Label
    id: Id
    score: float
    explanation: ExplainedQuery


class Change(Struct, frozen=True, omit_defaults=True):
    """A new version of a document. For a deletion, `deleted` is true and `document` is missing."""

    label: Label
    id: Id
    document: Mapping[str, object] | None = None
    deleted: bool = False


class Watch(Struct, frozen=True):
    """A stored query; `label`: label of the write that stored it."""

    id: Id
    q: str
    label: Label


class WatchList(Struct, frozen=True):
    """A page of the stored queries, ordered by id; `total`: number of stored queries in all."""

    total: NonNegative
    watches: Sequence[Watch]


class WatchEvent(Struct, frozen=True):
    """A document "entered" or "left" the results of a watch.

    `label`: label of the write that caused the event; `id`: id of the document; `watch`: id of the
    watch.
    """

    label: Label
    id: Id
    event: Literal["entered", "left"]
    watch: Id


class FieldDescription(Struct, frozen=True, omit_defaults=True):
    """A field of a collection; only a text field has `analyser` and `weight`."""

    name: str
    kind: str
    analyser: str = ""
    weight: float = 0.0


class CollectionDescription(Struct, frozen=True):
    """A collection; `others`: whether fields that it does not name are stored or refused."""

    name: str
    others: Literal["stored", "refused"]
    fields: Sequence[FieldDescription]


class Collections(Struct, frozen=True):
    """All collections of the index."""

    collections: Sequence[CollectionDescription]
