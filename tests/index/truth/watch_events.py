"""Check the events of watches by matching each stored query against each version, in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from driftline.index.documents.schema import Collection
from driftline.index.query.parsing import parse
from driftline.index.query.tree import Node
from tests.index.search.model import ModelDocument, matches
from tests.index.truth.client_history import WatchChange
from tests.index.truth.model import document_of

Event = tuple[int, Mapping[str, object]]
"""(label, decoded data) of an event of a stream."""


def event_errors(
    watch_changes: Sequence[WatchChange],
    streams: Mapping[str, Sequence[Event]],
    events: Sequence[Event],
    collection: Collection,
) -> Iterator[str]:
    """Yield missing and wrong events of watches.

    `streams`: the event stream of each watch; `events`: the whole change stream.
    """

    @lru_cache(4096)
    def tree(query: str) -> Node:
        return parse(query, collection).root

    def is_match(query: str | None, document: ModelDocument | None) -> bool:
        return query is not None and document is not None and matches(tree(query), document)

    unchecked: dict[str, dict[int, Mapping[str, object]]] = {}
    for watch, stream in streams.items():
        labels = [label for label, _ in stream]
        if labels != sorted(set(labels)):
            yield f"labels of the stream of {watch} do not ascend"
        unchecked[watch] = dict(stream)
    history = {watch: _WatchHistory(watch, watch_changes) for watch in streams}
    documents: dict[str, ModelDocument | None] = {}
    for label, event in events:
        id = str(event["id"])
        before, after = documents.get(id), _document(event, label, collection)
        documents[id] = after
        for watch in streams:
            allowed: list[object] = []
            for query in history[watch].at(label):
                matched_before, matches_now = is_match(query, before), is_match(query, after)
                change = "entered" if matches_now else "left"
                expected = {"watch": watch, "id": id, "event": change, "label": event["label"]}
                allowed.append(None if matched_before == matches_now else expected)
            found = unchecked[watch].pop(label, None)
            if found not in allowed:
                yield f"{watch}: event at {label} is {found}, expected one of {allowed}"
    for watch, remaining in unchecked.items():
        for label, event in remaining.items():
            yield f"{watch}: event {event} at {label}, where no document was written"


def _document(
    event: Mapping[str, object], label: int, collection: Collection
) -> ModelDocument | None:
    fields = event.get("document")
    if not isinstance(fields, dict):
        return None
    found = document_of(collection, label, fields)
    day, tags, year = found.values or (None, None, None)  # in the order of names
    assert isinstance(tags, tuple | None)
    assert isinstance(year, float | None)
    assert isinstance(day, int | None)
    return ModelDocument(found.texts, tags or (), year, day, numbered=(2, 0))


class _WatchHistory:
    """Changes of one watch in label order."""

    def __init__(self, watch: str, watch_changes: Sequence[WatchChange]) -> None:
        self._all = sorted((each for each in watch_changes if each.id == watch), key=_label)

    def at(self, label: int) -> Sequence[str | None]:
        """Return the possible queries at a label: several if a retried change may precede it."""
        applied_count = bisect_right(self._all, label, key=_label)
        newest = self._all[applied_count - 1].query if applied_count else None
        return [newest, *(each.query for each in self._all[applied_count:] if each.since < label)]


def _label(change: WatchChange) -> int:
    return change.label
