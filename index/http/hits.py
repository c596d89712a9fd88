"""Hits: those of several shards as one list, and each as it is shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from driftline.engine.errors import MalformedMessage
from driftline.index.search.places import Place, Sort, order
from driftline.serve.http.content.jsons import Json
from driftline.serve.views.hosted import Answer
from driftline.serve.views.tokens import token_of

FACET_VALUES_MAX = 100
"""Values of a facet that are shown: those that are most frequent."""


class Piece(NamedTuple):
    """A piece of a text, as `index.search.results.snippets.Snippet`."""

    text: str
    start: int
    more: bool
    marks: Sequence[tuple[int, int]]


class Hit(NamedTuple):
    """A document that was found."""

    id: str
    place: Place
    stored: bytes
    pieces: Mapping[str, Piece]


class Found(NamedTuple):
    """What all shards have found."""

    total: int
    hits: list[Hit]
    facets: dict[str, list[tuple[str, int]]]


def together(answers: Iterable[Answer], limit: int, sort: Sort | None = None) -> Found:
    """The answers of shards as one. Raises MalformedMessage."""
    total = 0
    hits: list[Hit] = []
    counts: dict[str, Counter[str]] = {}
    for answer in answers:
        match answer:
            case {"total": int(number), "hits": (*ranked,), "facets": {**facets}}:
                total += number
                hits += map(_hit, ranked)
                for name, found in facets.items():
                    counts.setdefault(str(name), Counter()).update(_counts(found))
            case _:
                raise MalformedMessage("a searcher has answered something else")
    hits.sort(key=lambda hit: order(hit.place, sort))  # of lists that are sorted: a merge
    return Found(total, hits[:limit], {name: _most(found) for name, found in counts.items()})


def total(answers: Iterable[Answer]) -> int:
    """How many documents all shards have found. Raises MalformedMessage."""
    found = 0
    for answer in answers:
        number = answer.get("total")
        if not isinstance(number, int):
            raise MalformedMessage("a searcher has answered something else")
        found += number
    return found


def shown(hit: Hit, fields: Sequence[str], with_snippet: bool) -> dict[str, Json]:
    """A hit as JSON."""
    found: dict[str, Json] = {
        "id": hit.id,
        "score": hit.place.score,
        "label": token_of(hit.place.time + 1),
    }
    if with_snippet:
        found["snippet"] = marked(hit.pieces)
    if fields:
        document = json.loads(hit.stored)
        found["fields"] = {name: document[name] for name in fields if name in document}
    return found


def marked(pieces: Mapping[str, Piece]) -> str:
    """One text of the pieces of a document's fields: HTML, in which `<mark>` is all markup.

    That with the most marks; of several such the longest; of several such the first.
    """
    if not pieces:
        return ""
    piece = max(pieces.values(), key=lambda each: (len(each.marks), len(each.text)))
    text: list[str] = ["…"] if piece.start else []
    at = 0
    for start, end in piece.marks:
        text += (escape(piece.text[at:start]), "<mark>", escape(piece.text[start:end]), "</mark>")
        at = end
    text.append(escape(piece.text[at:]))
    return "".join((*text, "…" if piece.more else ""))


def _most(counts: Counter[str]) -> list[tuple[str, int]]:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ordered[:FACET_VALUES_MAX]


def _counts(found: object) -> dict[str, int]:
    if not isinstance(found, dict):
        raise MalformedMessage("a searcher has answered something else")
    return {str(value): int(count) for value, count in found.items()}


def _hit(found: object) -> Hit:
    match found:
        case {
            "id": str(id),
            "score": float(score),
            "time": int(time),
            "value": (None | str() | int() | float()) as value,
            "stored": bytes(stored),
            "snippets": {**pieces},
        }:
            place = Place(score, time, value)
            return Hit(id, place, stored, {str(name): _piece(p) for name, p in pieces.items()})
    raise MalformedMessage("a searcher has answered something else")


def _piece(found: object) -> Piece:
    match found:
        case {"text": str(text), "start": int(start), "more": bool(more), "marks": (*marks,)}:
            return Piece(text, start, more, [(int(begin), int(end)) for begin, end in marks])
    raise MalformedMessage("a searcher has answered something else")
