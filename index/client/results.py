"""What a service answers, as values; and how they are read from its JSON.

Labels are texts, and so is each T. They are compared as texts: that of a later write is larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from driftline.index.client.errors import ServiceError, Unavailable

T = TypeVar("T")


class Written(msgspec.Struct, frozen=True):
    """A write that is durable; `label`: its place in the order of all writes.

    `repeated`: the write with this key was done before, and the label is its; `absent`: there was
    no document to delete.
    """

    id: str
    label: str
    repeated: bool = False
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A line of a bulk that was not written."""

    id: str
    error: ServiceError


class Document(msgspec.Struct, frozen=True):
    """A document as of `at`; `label`: of the write that has made it."""

    id: str
    label: str
    at: str
    document: Mapping[str, object]


class Hit(msgspec.Struct, frozen=True):
    """A document that was found; `snippet`: HTML, in which `<mark>` is the only markup; `fields`:
    those that were asked for."""

    id: str
    score: float
    label: str
    snippet: str = ""
    fields: Mapping[str, object] = {}


class FacetValue(msgspec.Struct, frozen=True):
    """A value of a field, and how many of all documents found have it."""

    value: str
    count: int


class Found(msgspec.Struct, frozen=True):
    """What a search has found as of `at`: `total` documents, and the first ones of them.

    `cursor`: goes on behind the last one, as of the same `at`; None: there are no more.
    """

    at: str
    total: int
    hits: tuple[Hit, ...]
    cursor: str | None = None
    facets: Mapping[str, tuple[FacetValue, ...]] = {}


class Count(msgspec.Struct, frozen=True):
    """How many documents a query finds as of `at`."""

    at: str
    total: int


class Explained(msgspec.Struct, frozen=True):
    """Why a document has its score as of `at`; `tree`: the parts of the query and their shares."""

    at: str
    id: str
    score: float
    tree: Mapping[str, object]


class Change(msgspec.Struct, frozen=True):
    """A new version of a document; `document`: None: it was deleted."""

    label: str
    id: str
    document: Mapping[str, object] | None = None


class Watch(msgspec.Struct, frozen=True):
    """A stored query; `label`: of the write that has stored it."""

    id: str
    q: str
    label: str


class WatchEvent(msgspec.Struct, frozen=True):
    """A document "begins" to match a watch, or "ceases" to, by the write with this label."""

    label: str
    id: str
    event: str


class Now(msgspec.Struct, frozen=True):
    """As of which T the service is."""

    at: str


def loads(data: bytes | str) -> object:
    """Return a value of JSON. This and the functions below raise Unavailable for anything else."""
    return decoded(data, object)


def decoded(data: bytes | str, kind: type[T]) -> T:
    """Return an answer that is of a kind."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_answer(data, error) from None


def converted(told: object, kind: type[T]) -> T:
    """Return a part of an answer, a value of JSON, that is of a kind."""
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        raise _no_answer(told, error) from None


def _no_answer(told: object, why: Exception) -> Unavailable:
    text = (
        f"this is no answer of an index service: {str(told)[:200]} ({why}); is the address right?"
    )
    return Unavailable("answer", text)
