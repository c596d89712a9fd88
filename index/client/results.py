"""What a service answers, as values; and how they are read from its JSON.

Labels are texts, and so is each T. They are compared as texts: that of a later write is larger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from driftline.index.client.errors import ServiceError, Unavailable


@dataclass(frozen=True, slots=True)
class Written:
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


@dataclass(frozen=True, slots=True)
class Document:
    """A document as of `at`; `label`: of the write that has made it."""

    id: str
    label: str
    at: str
    document: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found; `snippet`: HTML, in which `<mark>` is the only markup; `fields`:
    those that were asked for."""

    id: str
    score: float
    label: str
    snippet: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a field, and how many of all documents found have it."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found as of `at`: `total` documents, and the first ones of them.

    `cursor`: goes on behind the last one, as of the same `at`; None: there are no more.
    """

    at: str
    total: int
    hits: tuple[Hit, ...]
    cursor: str | None
    facets: Mapping[str, tuple[FacetValue, ...]]


@dataclass(frozen=True, slots=True)
class Count:
    """How many documents a query finds as of `at`."""

    at: str
    total: int


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a document has its score as of `at`; `tree`: the parts of the query and their shares."""

    at: str
    id: str
    score: float
    tree: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """A new version of a document; `document`: None: it was deleted."""

    label: str
    id: str
    document: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Watch:
    """A stored query; `label`: of the write that has stored it."""

    id: str
    q: str
    label: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A document "begins" to match a watch, or "ceases" to, by the write with this label."""

    label: str
    id: str
    event: str


def loads(data: bytes | str) -> object:
    """A value of JSON. This and all below raise Unavailable for anything else."""
    try:
        found: object = json.loads(data)
    except ValueError:
        raise _no_answer(data) from None
    return found


def written(told: object) -> Written:
    """The answer to a write."""
    match told:
        case {"id": str(id), "label": str(label), **more}:
            return Written(id, label, more.get("repeated") is True, more.get("absent") is True)
    raise _no_answer(told)


def document(told: object) -> Document:
    """The answer to a read of a document."""
    match told:
        case {"id": str(id), "label": str(label), "at": str(at), "document": {**fields}}:
            return Document(id, label, at, _named(fields))
    raise _no_answer(told)


def found(told: object) -> Found:
    """The answer to a search."""
    match told:
        case {"at": str(at), "total": int(total), "hits": [*hits], **more}:
            cursor, facets = more.get("cursor"), more.get("facets", {})
            if isinstance(cursor, str | None) and isinstance(facets, dict):
                counted = {str(name): _facet(values) for name, values in facets.items()}
                return Found(at, total, tuple(map(_hit, hits)), cursor, counted)
    raise _no_answer(told)


def count(told: object) -> Count:
    """The answer to a count."""
    match told:
        case {"at": str(at), "total": int(total)}:
            return Count(at, total)
    raise _no_answer(told)


def explained(told: object) -> Explained:
    """The explanation of a score."""
    match told:
        case {"at": str(at), "id": str(id), "score": int() | float() as score, "tree": {**tree}}:
            return Explained(at, id, float(score), _named(tree))
    raise _no_answer(told)


def change(told: object) -> Change:
    """The data of an event of `/changes`."""
    match told:
        case {"label": str(label), "id": str(id), "deleted": True}:
            return Change(label, id, None)
        case {"label": str(label), "id": str(id), "document": {**fields}}:
            return Change(label, id, _named(fields))
    raise _no_answer(told)


def watch(told: object) -> Watch:
    """A stored query."""
    match told:
        case {"id": str(id), "q": str(q), "label": str(label)}:
            return Watch(id, q, label)
    raise _no_answer(told)


def watch_event(told: object) -> WatchEvent:
    """The data of an event of a watch."""
    match told:
        case {"label": str(label), "id": str(id), "event": str(event)}:
            return WatchEvent(label, id, event)
    raise _no_answer(told)


def at(told: object) -> str:
    """The T that an answer says."""
    match told:
        case {"at": str(time)}:
            return time
    raise _no_answer(told)


def _hit(told: object) -> Hit:
    match told:
        case {"id": str(id), "score": int() | float() as score, "label": str(label), **more}:
            snippet, fields = more.get("snippet", ""), more.get("fields", {})
            if isinstance(snippet, str) and isinstance(fields, dict):
                return Hit(id, float(score), label, snippet, _named(fields))
    raise _no_answer(told)


def _facet(told: object) -> tuple[FacetValue, ...]:
    values = []
    for each in told if isinstance(told, list) else [told]:
        match each:
            case {"value": str(value), "count": int(number)}:
                values.append(FacetValue(value, number))
            case _:
                raise _no_answer(told)
    return tuple(values)


def _named(fields: Mapping[object, object]) -> dict[str, object]:
    return {str(name): value for name, value in fields.items()}


def _no_answer(told: object) -> Unavailable:
    text = f"this is no answer of an index service: {str(told)[:200]}; is the address right?"
    return Unavailable("answer", text)
