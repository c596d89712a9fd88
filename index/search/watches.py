"""Watches of a collection: stored queries, each an element in the order of all writes.

Input: writes that put or remove watches, and versions, all in label order. Output: events. A
version causes an "entered" event of a watch if it matches the query and the document's previous
version does not, and a "left" event in the opposite case. A version that matches like the previous
one causes no event, even if its contents differ.

A query applies to versions after the label of its watch; the previous version is compared with the
same query. Putting a watch causes no events for documents that already match. To get these, search
as of the label of the watch. Putting a watch again replaces its query for later versions; existing
events stay. The events of a removed watch also stay while they are retained. A query that cannot be
parsed matches nothing; the gateway rejects such queries.

Invariant: the events depend only on the input, however often the index was saved and loaded.

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
from driftline.index.search.checkpoint_codec import Saved, encode_numbers, encode_texts
from driftline.index.search.version_matching import (
    Anchor,
    Frequency,
    VersionContents,
    anchors_of,
    matches,
)

Change = Literal["entered", "left"]
CHANGES: tuple[Change, Change] = "left", "entered"


class Event(NamedTuple):
    """Event of a watch; `time`: the label time of the version; `id`: the id of its document."""

    time: int
    id: str
    change: Change


class Changes:
    """Retained versions that caused events.

    `events`: encoded events of all watches for these versions, to count the events per version.
    """

    def __init__(
        self, times: Iterable[int] = (), ids: Iterable[str] = (), events: Iterable[int] = ()
    ) -> None:
        self.first = 0
        """Number of the first retained version."""
        self.times = array("q", times)
        self.ids = list(ids)
        of_each = Counter(event // 2 for event in events)
        self._counts = array("q", [of_each[number] for number in range(len(self.ids))])
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
        """Return the retained events of a watch; `events` may be None."""
        if events is None:
            return array("q")
        return events[bisect_left(events, 2 * self.first) :]

    def read(self, events: array[int] | None, since: int, limit: int) -> list[Event]:
        """Decode the first `limit` events of a watch from a time on."""
        retained, first = self.retained(events), self.first
        begin = bisect_left(retained, 2 * (first + bisect_left(self.times, since)))
        return [
            Event(self.times[event // 2 - first], self.ids[event // 2 - first], CHANGES[event & 1])
            for event in retained[begin : begin + limit]
        ]


NO_MATCH_TREE = Or(())
"""Tree of a query that cannot be parsed: it matches nothing."""

REMOVED = -1
"""Time of a removed watch in a checkpoint."""

SWEPT_FROM = 10_000
"""Memory of forgotten events is freed only if there are more than this many."""


class WatchEntry:
    """A watch; `time`: label time at which it was put; `query`: text of its query.

    A removed watch with retained events has the query None.
    """

    __slots__ = ("anchors", "events", "id", "query", "time", "tree")

    def __init__(self, id: str) -> None:
        self.id = id
        self.time = REMOVED
        self.query: str | None = None
        self.tree: Node = NO_MATCH_TREE
        self.anchors: tuple[Anchor, ...] | None = ()
        self.events: array[int] | None = None
        """None: no retained events."""

    def add(self, event: int) -> None:
        """Add the next event."""
        if self.events is None:
            self.events = array("q")
        self.events.append(event)


Candidates = dict[WatchEntry, None]
"""Watches that may match a version, as an ordered set."""


class WatchIndex:
    """Watches of one collection; `frequency`: document frequency, used to choose anchors."""

    def __init__(
        self, collection: Collection, frequency: Frequency = lambda field, word: 0
    ) -> None:
        self._collection = collection
        self._frequency = frequency
        self._watches: dict[str, WatchEntry] = {}
        """Includes removed watches that have events."""
        self._anchored: dict[tuple[bool, int], dict[str, Candidates]] = {}
        """(is_keyword, field) -> anchor text -> the watches with this anchor."""
        self._unanchored: Candidates = {}
        """Watches that are evaluated for every version."""
        self._changes = Changes()
        self._watch_count = 0
        """Number of current watches."""
        self._event_count = 0
        """Number of retained events of all watches."""
        self._stale = 0
        """Number of forgotten events that still take memory."""

    # Input.

    def put(self, time: int, id: str, query: str) -> None:
        """Set the query of a watch for later versions."""
        watch = self._watches.get(id)
        if watch is None:
            watch = self._watches[id] = WatchEntry(id)
        self._forget(watch)
        self._begin(watch, time, query)

    def remove(self, time: int, id: str) -> None:
        """Remove a watch, if it exists."""
        watch = self._watches.get(id)
        if watch is not None:
            self._forget(watch)
            if watch.events is None:
                del self._watches[id]

    def apply(
        self,
        time: int,
        version: DocumentVersion,
        read_previous: Callable[[], DocumentVersion | None],
    ) -> None:
        """Apply the next version and record its events.

        `read_previous`: returns the previous version of the document, with words and values. It is
        called only if these are needed, and never if there is no previous version.
        """
        if not self._watch_count:
            return

        now = earlier = VersionContents((), lambda: None)
        new: Candidates = {}
        old: Candidates = {}
        if not version.deleted:
            now = VersionContents.of(version)
            new = self._candidates(now)
        if version.replaced is not None:
            words = [() if field is None else frozenset(field.words) for field in version.replaced]
            earlier = VersionContents(words, read_previous)
            old = self._candidates(earlier)
        entered, left = list[WatchEntry](), list[WatchEntry]()
        for watch in new | old:
            matches_now = watch in new and matches(watch.tree, now)
            matched_before = watch in old and matches(watch.tree, earlier)
            if matches_now != matched_before:
                (entered if matches_now else left).append(watch)
        self._append(time, version.id, entered, left)

    def _candidates(self, contents: VersionContents) -> Candidates:
        found = dict(self._unanchored)
        for (is_keyword, field), watches_of in self._anchored.items():
            texts = contents.keywords(field) if is_keyword else contents.words[field]
            for watches in filter(None, map(watches_of.get, texts)):
                found.update(watches)
        return found

    def _append(
        self, time: int, id: str, entered: list[WatchEntry], left: list[WatchEntry]
    ) -> None:
        count = len(entered) + len(left)
        if not count:
            return
        event = 2 * self._changes.add(time, id, count)
        self._event_count += count
        for watch in left:
            watch.add(event)
        for watch in entered:
            watch.add(event + 1)

    def forget_before(self, since: int) -> None:
        """Forget the events before a time."""
        forgotten = self._changes.forget_before(since)
        self._event_count -= forgotten
        self._stale += forgotten
        if self._stale > max(SWEPT_FROM, self._event_count):
            self._sweep()

    def _sweep(self) -> None:
        """Free the memory of forgotten events."""
        self._stale = 0
        for watch in list(self._watches.values()):
            watch.events = self._changes.retained(watch.events) or None
            if watch.events is None and watch.query is None:
                del self._watches[watch.id]

    # Reading.

    def events(self, id: str, since: int, limit: int) -> list[Event]:
        """Return the first `limit` events of a watch from a time on, in label order.

        Includes events of a removed watch; returns none for an unknown one. Precondition: the time
        is retained.
        """
        watch = self._watches.get(id)
        return [] if watch is None else self._changes.read(watch.events, since, limit)

    def find(self, id: str) -> WatchEntry | None:
        """Return a current watch; None if there is none."""
        watch = self._watches.get(id)
        return None if watch is None or watch.query is None else watch

    def watches(self) -> list[WatchEntry]:
        """Return all current watches, ordered by id."""
        there = (watch for watch in self._watches.values() if watch.query is not None)
        return sorted(there, key=lambda watch: watch.id)

    def figures(self) -> Mapping[str, float]:
        """Return statistics for people and metrics, by name."""
        return {
            "watches": self._watch_count,
            "watches_without_anchor": len(self._unanchored),
            "watch_events": self._event_count,
        }

    # Saving.

    def save(self) -> Iterator[bytes]:
        """Yield the watches and their events as checkpoint parts."""
        yield from encode_numbers(self._changes.times)
        yield from encode_texts(self._changes.ids)
        watches = list(self._watches.values())
        yield from encode_texts(watch.id for watch in watches)
        yield from encode_texts(watch.query or "" for watch in watches)
        yield from encode_numbers(array("q", [watch.time for watch in watches]))
        counts, events, first = array("q"), array("q"), 2 * self._changes.first
        for watch in watches:
            retained = self._changes.retained(watch.events)
            counts.append(len(retained))
            events.extend([event - first for event in retained])
        yield from encode_numbers(counts)
        yield from encode_numbers(events)

    def load(self, saved: Saved) -> None:
        """Restore saved state. Precondition: nothing was applied. Raises SnapshotDamaged."""
        times, versions = saved.numbers(), saved.texts()
        ids, queries, put_at = saved.texts(), saved.texts(), saved.numbers()
        counts, events = saved.numbers(), saved.numbers()
        if len({len(ids), len(queries), len(put_at), len(counts)}) > 1:
            raise saved.damaged()
        if len(times) != len(versions) or len(events) != sum(counts):
            raise saved.damaged()
        if events and not 0 <= min(events) <= max(events) < 2 * len(times):
            raise saved.damaged()
        self._changes = Changes(times, versions, events)
        self._event_count = len(events)
        at = 0
        for watch, query, time, count in zip(
            map(WatchEntry, ids), queries, put_at, counts, strict=True
        ):
            watch.events, at = events[at : at + count] or None, at + count
            self._watches[watch.id] = watch
            if time != REMOVED:
                self._begin(watch, time, query)

    def _begin(self, watch: WatchEntry, time: int, query: str) -> None:
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

    def _forget(self, watch: WatchEntry) -> None:
        """Remove the query of a watch, if it has one."""
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
