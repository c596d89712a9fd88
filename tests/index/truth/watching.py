"""Checks events of stored queries against trying all queries on all versions, in label order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from driftline.index.documents.schema import Collection
from driftline.index.query.parsing import parse
from driftline.index.query.tree import Node
from tests.index.search.model import Document, matches
from tests.index.truth.model import document_of
from tests.index.truth.notes import Watched

Event = tuple[int, Mapping[str, object]]
"""Of a stream: (label, what it tells)."""


def wrong_events(
    watched: Sequence[Watched],
    streams: Mapping[str, Sequence[Event]],
    events: Sequence[Event],
    collection: Collection,
) -> Iterator[str]:
    """What readers of watches were told that must not be, or were not told.

    `streams`: per watch its stream; `events`: the change stream, from its beginning on.
    """

    @lru_cache(4096)
    def tree(query: str) -> Node:
        return parse(query, collection).root

    def has(query: str | None, document: Document | None) -> bool:
        return query is not None and document is not None and matches(tree(query), document)

    rest: dict[str, dict[int, Mapping[str, object]]] = {}
    for watch, stream in streams.items():
        labels = [label for label, _ in stream]
        if labels != sorted(set(labels)):
            yield f"labels of the stream of {watch} do not ascend"
        rest[watch] = dict(stream)
    history = {watch: _History(watch, watched) for watch in streams}
    documents: dict[str, Document | None] = {}
    for label, event in events:
        id = str(event["id"])
        before, after = documents.get(id), _document(event, label, collection)
        documents[id] = after
        for watch in streams:
            allowed: list[object] = []
            for query in history[watch].at(label):
                did, does = has(query, before), has(query, after)
                change = "entered" if does else "left"
                about = {"watch": watch, "id": id, "event": change, "label": event["label"]}
                allowed.append(None if did == does else about)
            found = rest[watch].pop(label, None)
            if found not in allowed:
                yield f"{watch} has told {found} at {label}, and this had to be: {allowed}"
    for watch, more in rest.items():
        for label, event in more.items():
            yield f"{watch} has told {event} at {label}, where nothing was written"


def _document(event: Mapping[str, object], label: int, collection: Collection) -> Document | None:
    fields = event.get("document")
    if not isinstance(fields, dict):
        return None
    found = document_of(collection, label, fields)
    day, tags, year = found.values or (None, None, None)  # in the order of names
    assert isinstance(tags, tuple | None)
    assert isinstance(year, float | None)
    assert isinstance(day, int | None)
    return Document(found.texts, tags or (), year, day, numbered=(2, 0))


class _History:
    """What a watch was, in label order."""

    def __init__(self, watch: str, watched: Sequence[Watched]) -> None:
        self._all = sorted((each for each in watched if each.id == watch), key=_label)

    def at(self, label: int) -> Sequence[str | None]:
        """The queries that it may have had for a version: one, unless a write was unsure."""
        done = bisect_right(self._all, label, key=_label)
        newest = self._all[done - 1].query if done else None
        return [newest, *(each.query for each in self._all[done:] if each.since < label)]


def _label(watched: Watched) -> int:
    return watched.label
