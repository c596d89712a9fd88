"""Watches of a collection: stored queries, put and removed by writes in label order.

Input: writes that put or remove watches, and versions, all in label order. Output: events. A
version causes an "entered" event of a watch if it matches the query and the document's previous
version does not, and a "left" event in the opposite case. A deletion matches nothing. If both
versions match, or neither does, there is no event, even if their contents differ.

A query applies to versions after the label of its watch. The document's previous version is matched
against the same query, even if it is older than the watch. Putting a watch causes no events for
documents that already match; a search as of the label of the watch finds these. Putting a watch
again replaces its query for later versions; existing events stay. The events of a removed watch
also stay, until `forget_before` drops them. The gateway rejects a query that cannot be parsed; if
the index gets one, it matches nothing.

Invariant: the events depend only on the input, however often the index was saved and loaded.

The *anchors* of a query are words or keywords; each version that matches the query contains at
least one of them (`version_matching`). So the index evaluates, for a version, only the watches with
an anchor in it and the watches without anchors.

An event is stored as a 64-bit number: versions with events are numbered consecutively, and an event
is twice the number of its version, plus 1 for "entered".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from driftline.index.documents.schema import Collection
from driftline.index.documents.versions import DocumentVersion
from driftline.index.query.parsing import QueryError, parse
from driftline.index.query.tree import Node, Or
from driftline.index.search.checkpoint_codec import CheckpointReader, encode_numbers, encode_texts
from driftline.index.search.version_matching import (
    Anchor,
    DocumentFrequency,
    VersionContents,
    anchors_of,
    matches,
)

Change = Literal["entered", "left"]
CHANGES: tuple[Change, Change] = "left", "entered"
"""The lowest bit of an encoded event is the index of its change in this tuple."""


class Event(NamedTuple):
    """Event of a watch; `time`: label time of the version; `id`: id of the document."""

    time: int
    id: str
    change: Change


class EventVersions:
    """Retained versions that caused events: their label times and document ids.

    `events`: encoded events of all watches for these versions, to count the events per version.
    """

    def __init__(
        self, times: Iterable[int] = (), ids: Iterable[str] = (), events: Iterable[int] = ()
    ) -> None:
        self.first = 0
        """Number of the first retained version."""
        self.times = array("q", times)
        self.ids = list(ids)
        counter = Counter(event // 2 for event in events)
        self._counts = array("q", [counter[number] for number in range(len(self.ids))])
        """Number of events per version."""

    def add(self, time: int, id: str, count: int) -> int:
        """Add the next version, with `count` events, and return its number.

        Precondition: no version with a later time was added.
        """
        self.times.append(time)
        self.ids.append(id)
        self._counts.append(count)
        return self.first + len(self.times) - 1

    def forget_before(self, since: int) -> int:
        """Forget versions before a time; return the number of their events."""
        forgotten = bisect_left(self.times, since)
        count = sum(self._counts[:forgotten])
        del self.times[:forgotten], self.ids[:forgotten], self._counts[:forgotten]
        self.first += forgotten
        return count

    def retained(self, events: array[int] | None) -> array[int]:
        """Return the retained ones of a watch's encoded events; `events`: None if it has none."""
        if events is None:
            return array("q")
        return events[bisect_left(events, 2 * self.first) :]

    def read(self, events: array[int] | None, since: int, limit: int) -> list[Event]:
        """Decode the first `limit` retained events of a watch from the time `since` on."""
        retained, first = self.retained(events), self.first
        begin = bisect_left(retained, 2 * (first + bisect_left(self.times, since)))
        return [
            Event(self.times[event // 2 - first], self.ids[event // 2 - first], CHANGES[event & 1])
            for event in retained[begin : begin + limit]
        ]


NO_MATCH_TREE = Or(())
"""Tree of a query that cannot be parsed: it matches nothing."""

REMOVED = -1
"""`WatchEntry.time` of a removed watch."""

SWEEP_MIN = 10_000
"""Forgotten events are freed once there are more than this many, and more than retained ones."""


class WatchEntry:
    """A watch; `time`: label time of the write that put it; `query`: text of its query.

    A removed watch with events has the query None and the time `REMOVED`. `anchors`: None if the
    query has none, so that it is evaluated for every version. `events`: encoded events, including
    forgotten ones whose memory is not freed yet.
    """

    __slots__ = ("anchors", "events", "id", "query", "time", "tree")

    def __init__(self, id: str) -> None:
        self.id = id
        self.time = REMOVED
        self.query: str | None = None
        self.tree: Node = NO_MATCH_TREE
        self.anchors: tuple[Anchor, ...] | None = ()
        self.events: array[int] | None = None
        """None: no events."""

    def add(self, event: int) -> None:
        """Add the next encoded event."""
        if self.events is None:
            self.events = array("q")
        self.events.append(event)


Candidates = dict[WatchEntry, None]
"""Watches that may match a version, as an ordered set."""


class WatchIndex:
    """Watches of one collection; `frequency`: document frequency, used to choose anchors."""

    def __init__(
        self, collection: Collection, frequency: DocumentFrequency = lambda field, word: 0
    ) -> None:
        self._collection = collection
        self._frequency = frequency
        self._watches: dict[str, WatchEntry] = {}
        """Includes removed watches that have events."""
        self._anchored: dict[tuple[bool, int], dict[str, Candidates]] = {}
        """(is_keyword, field) -> anchor text -> the watches with this anchor."""
        self._unanchored: Candidates = {}
        """Watches that are evaluated for every version."""
        self._event_versions = EventVersions()
        self._watch_count = 0
        """Number of current watches."""
        self._event_count = 0
        """Number of retained events of all watches."""
        self._stale_count = 0
        """Number of forgotten events that still take memory."""

    # Input.

    def put(self, time: int, id: str, query: str) -> None:
        """Set the query of a watch for later versions."""
        watch = self._watches.get(id)
        if watch is None:
            watch = self._watches[id] = WatchEntry(id)
        self._clear_query(watch)
        self._set_query(watch, time, query)

    def remove(self, time: int, id: str) -> None:
        """Remove a watch, if it exists."""
        watch = self._watches.get(id)
        if watch is not None:
            self._clear_query(watch)
            if watch.events is None:
                del self._watches[id]

    def apply(
        self,
        time: int,
        version: DocumentVersion,
        read_previous: Callable[[], DocumentVersion | None],
    ) -> None:
        """Apply the next version and record its events.

        `read_previous`: returns the previous version of the document, with words and values; called
        only if a query needs positions or values, and never if there is no previous version.
        """
        if not self._watch_count:
            return

        new = old = VersionContents((), lambda: None)
        new_candidates: Candidates = {}
        old_candidates: Candidates = {}
        if not version.deleted:
            new = VersionContents.of(version)
            new_candidates = self._candidates(new)
        if version.replaced is not None:
            words = [() if field is None else frozenset(field.words) for field in version.replaced]
            old = VersionContents(words, read_previous)
            old_candidates = self._candidates(old)
        entered, left = list[WatchEntry](), list[WatchEntry]()
        for watch in new_candidates | old_candidates:
            new_matches = watch in new_candidates and matches(watch.tree, new)
            old_matches = watch in old_candidates and matches(watch.tree, old)
            if new_matches != old_matches:
                (entered if new_matches else left).append(watch)
        self._add_events(time, version.id, entered, left)

    def _candidates(self, contents: VersionContents) -> Candidates:
        candidates = dict(self._unanchored)
        for (is_keyword, field), watches_of in self._anchored.items():
            texts = contents.keywords(field) if is_keyword else contents.words[field]
            for watches in filter(None, map(watches_of.get, texts)):
                candidates.update(watches)
        return candidates

    def _add_events(
        self, time: int, id: str, entered: list[WatchEntry], left: list[WatchEntry]
    ) -> None:
        """Add the events of a version.

        `entered`, `left`: the watches whose results the document entered or left.
        """
        count = len(entered) + len(left)
        if not count:
            return
        event = 2 * self._event_versions.add(time, id, count)
        self._event_count += count
        for watch in left:
            watch.add(event)
        for watch in entered:
            watch.add(event + 1)

    def forget_before(self, since: int) -> None:
        """Forget the events before a time."""
        forgotten_count = self._event_versions.forget_before(since)
        self._event_count -= forgotten_count
        self._stale_count += forgotten_count
        if self._stale_count > max(SWEEP_MIN, self._event_count):
            self._sweep()

    def _sweep(self) -> None:
        """Free the memory of forgotten events, and of removed watches without other events."""
        self._stale_count = 0
        for watch in list(self._watches.values()):
            watch.events = self._event_versions.retained(watch.events) or None
            if watch.events is None and watch.query is None:
                del self._watches[watch.id]

    # Reading.

    def events(self, id: str, since: int, limit: int) -> list[Event]:
        """Return the first `limit` events of a watch from a time on, in label order.

        Includes events of a removed watch; an unknown watch has none. Precondition: events
        from `since` on are retained.
        """
        watch = self._watches.get(id)
        return [] if watch is None else self._event_versions.read(watch.events, since, limit)

    def find(self, id: str) -> WatchEntry | None:
        """Return the current watch with an id; None if there is none."""
        watch = self._watches.get(id)
        return None if watch is None or watch.query is None else watch

    def watches(self) -> list[WatchEntry]:
        """Return all current watches, ordered by id."""
        current = (watch for watch in self._watches.values() if watch.query is not None)
        return sorted(current, key=lambda watch: watch.id)

    def figures(self) -> Mapping[str, float]:
        """Return figures for status and metrics, by name."""
        return {
            "watches": self._watch_count,
            "watches_without_anchor": len(self._unanchored),
            "watch_events": self._event_count,
        }

    # Saving.

    def save(self) -> Iterator[bytes]:
        """Yield the watches and their events as checkpoint parts."""
        yield from encode_numbers(self._event_versions.times)
        yield from encode_texts(self._event_versions.ids)
        watches = list(self._watches.values())
        yield from encode_texts(watch.id for watch in watches)
        yield from encode_texts(watch.query or "" for watch in watches)
        yield from encode_numbers(array("q", [watch.time for watch in watches]))
        counts, events, first_event = array("q"), array("q"), 2 * self._event_versions.first
        for watch in watches:
            retained = self._event_versions.retained(watch.events)
            counts.append(len(retained))
            events.extend([event - first_event for event in retained])
        yield from encode_numbers(counts)
        yield from encode_numbers(events)

    def load(self, reader: CheckpointReader) -> None:
        """Restore saved state. Precondition: nothing was applied. Raises SnapshotDamaged."""
        times, document_ids = reader.numbers(), reader.texts()
        watch_ids, queries, watch_times = reader.texts(), reader.texts(), reader.numbers()
        counts, events = reader.numbers(), reader.numbers()
        if len({len(watch_ids), len(queries), len(watch_times), len(counts)}) > 1:
            raise reader.damaged()
        if len(times) != len(document_ids) or len(events) != sum(counts):
            raise reader.damaged()
        if events and not 0 <= min(events) <= max(events) < 2 * len(times):
            raise reader.damaged()
        self._event_versions = EventVersions(times, document_ids, events)
        self._event_count = len(events)
        at = 0
        for watch, query, time, count in zip(
            map(WatchEntry, watch_ids), queries, watch_times, counts, strict=True
        ):
            watch.events, at = events[at : at + count] or None, at + count
            self._watches[watch.id] = watch
            if time != REMOVED:
                self._set_query(watch, time, query)

    def _set_query(self, watch: WatchEntry, time: int, query: str) -> None:
        """Set the query of a watch that has none, and index the watch by its anchors."""
        watch.time, watch.query = time, query
        try:
            watch.tree = parse(query, self._collection).root
        except QueryError:
            watch.tree = NO_MATCH_TREE
        watch.anchors = anchors_of(watch.tree, self._frequency)
        self._watch_count += 1
        if watch.anchors is None:
            self._unanchored[watch] = None
            return
        for is_keyword, field, text in watch.anchors:
            of_field = self._anchored.setdefault((is_keyword, field), {})
            of_field.setdefault(text, {})[watch] = None

    def _clear_query(self, watch: WatchEntry) -> None:
        """Remove the query of a watch, if it has one, and the index entries of its anchors."""
        if watch.query is None:
            return
        self._unanchored.pop(watch, None)
        for is_keyword, field, text in watch.anchors or ():
            of_field = self._anchored[is_keyword, field]
            del of_field[text][watch]
            if not of_field[text]:
                del of_field[text]
            if not of_field:
                del self._anchored[is_keyword, field]
        watch.time, watch.query, watch.tree, watch.anchors = REMOVED, None, NO_MATCH_TREE, ()
        self._watch_count -= 1
