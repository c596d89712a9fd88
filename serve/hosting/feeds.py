"""Feeds: how spans of the journal reach those who follow it in other processes.

Takes, at the journal: `follow` (who, from which time on, how many bytes may be under way), `credit`
(bytes that were taken), each span as it is forwarded, and what is stored. Gives: spans, and how far
the journal is durable.
Invariants: the spans of a feed follow each other without a gap, from the time on that was asked
for. No more bytes are under way to a follower than it has room for: one that is slow holds nobody
up, and the journal keeps nothing for it but a place to read on from.

A feed is *live* while it has had every span: it is given each new one before that is stored. One
that is behind is given what is stored, until there is no more of it. Each span says how far the
journal is durable, and so does the answer to a `follow`, if that is news: nobody is woken up for
it. A live feed hears something once a second in any case, as a sign of life. Messages may be lost
with either process: a follower says `follow` again and again, and begins anew if that is news.

What is read in a turn is bounded, however many are behind: they have their turns one after the
other. *Streams*, which have little room, share a part of their own, so any number of them leaves
the barriers, the views and the gateway their time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import RetentionExceeded
from driftline.serve.journal import Span

ROOM_BYTES = 1 << 24
"""Bytes that may be under way to a view or a gateway, and one span beyond."""

STREAM_BYTES = 1 << 17
"""Bytes that may be under way to a stream, of which there may be many, and one span beyond."""

FOLLOW_EVERY_S = 0.25
"""How often a follower says that it is there."""

GONE_AFTER_S = 5.0
"""A follower that is silent for longer is given nothing more; when it speaks it begins anew."""

SIGN_EVERY_S = 1.0
"""How often a feed that is live hears from the journal at least."""

TURN_BYTES = 1 << 17
"""Bytes that a turn reads for those that are behind and no streams, some 10 ms; one span beyond."""

TURN_STREAM_BYTES = 1 << 16
"""Bytes that a turn reads for all streams together."""

STEP_BYTES = 1 << 10
"""A step of reading counts for so many bytes at least, though it gives none."""

NOBODY = -1
"""What a follower needs of the journal that can go on from whatever there is."""

_FOLLOW, _CREDIT, _SPAN, _STORED, _GONE = range(5)


class _Feed:
    """A follower, and how far it has been read to."""

    def __init__(self, session: str, time: int, room: int) -> None:
        self.session = session
        self.time = time
        """It has been given all spans up to here."""
        self.room = room
        self.is_stream = room < ROOM_BYTES
        self.heard_at = 0.0
        self.told_at = 0.0
        """When a sign of life was given last."""
        self.told = -1
        """How far the journal is durable, as far as it was told."""
        self.reading: Iterator[Span | None] | None = None
        """None: it is live."""
        self.over = False

    @property
    def is_due(self) -> bool:
        """Whether there is something to read for it."""
        return self.reading is not None and self.room > 0 and not self.over


class Feeds:
    """The feeds of one journal. `read`: gives the spans that are stored, from a time on, in small
    steps; None: a step that gives none."""

    def __init__(self, read: Callable[[int], Iterator[Span | None]]) -> None:
        self.outbox: list[tuple[bytes, bytes]] = []
        """(route of a follower, message)"""
        self.kept: dict[str, int] = {}
        """Name of a follower -> it can begin from this time, if it has to begin anew."""
        self._read = read
        self._feeds: dict[bytes, _Feed] = {}
        """By their routes; whose turn was longest ago is first."""
        self._stored = 0

    @property
    def followers(self) -> int:
        """How many there are."""
        return len(self._feeds)

    def take(self, route: bytes, data: bytes, now: float) -> None:
        """Take a message of a follower. Raises MalformedMessage."""
        feed = self._feeds.get(route)
        match unpack(data):
            case (code, str(session), str(name), int(since), int(kept), int(room)) if (
                code == _FOLLOW
            ):
                if kept != NOBODY:
                    self.kept[name] = kept
                if feed is None or feed.session != session:
                    feed = self._feeds[route] = _Feed(session, since, room)
                    feed.reading = self._from(since)
                feed.heard_at = now
                if feed.reading is None and feed.told < self._stored:
                    self._tell(route, feed)
            case (code, str(session), int(count)) if code == _CREDIT:
                if feed is not None and feed.session == session:
                    feed.room += count
                    feed.heard_at = now
            case _:
                raise MalformedMessage("not a message of a follower")

    def forward(self, span: Span) -> None:
        """The journal has a new span, which may not be stored yet."""
        data = b""
        for route, feed in self._feeds.items():
            if feed.reading is not None:
                continue  # it will be read
            if feed.room > 0 and feed.time >= span.since:
                data = data or _span(span, self._stored)
                self._give(route, feed, span, data)
            else:
                feed.reading = self._from(feed.time)

    def stored(self, time: int) -> None:
        """All spans up to this time are durable."""
        self._stored = time

    def gone(self, route: bytes) -> None:
        """A follower has left."""
        self._feeds.pop(route, None)

    def turn(self, now: float) -> bool:
        """Read on for those that are behind. Returns whether there is more to read at once."""
        for route, feed in list(self._feeds.items()):
            if now - feed.heard_at > GONE_AFTER_S or feed.over:
                self.gone(route)
        for route, feed in self._feeds.items():
            if feed.reading is None and now - feed.told_at >= SIGN_EVERY_S:
                feed.told_at = now
                self._tell(route, feed)
        due = [(route, feed) for route, feed in self._feeds.items() if feed.is_due]
        more = self._read_on([each for each in due if not each[1].is_stream], TURN_BYTES)
        more |= self._read_on([each for each in due if each[1].is_stream], TURN_STREAM_BYTES)
        return more

    def _read_on(self, due: Sequence[tuple[bytes, _Feed]], left: int) -> bool:
        """Read so many bytes for one after the other. Returns whether there is more to read."""
        for route, feed in due:
            if left <= 0:
                return True
            self._feeds[route] = self._feeds.pop(route)
            while left > 0 and feed.is_due:
                left -= max(STEP_BYTES, self._step(route, feed))
        return any(feed.is_due for _, feed in due)

    def _step(self, route: bytes, feed: _Feed) -> int:
        """Read one step on. Returns how many bytes were given."""
        assert feed.reading is not None
        try:
            span = next(feed.reading)
            if span is None:
                return 0
            return self._give(route, feed, span, _span(span, max(span.time, self._stored)))
        except StopIteration:
            feed.reading = None
            self._tell(route, feed)  # so one that lacks nothing hears from us, too
        except RetentionExceeded as error:
            self._end(route, feed, error, error.oldest)
        except DriftlineError as error:
            self._end(route, feed, error, -1)
        return 0

    def _end(self, route: bytes, feed: _Feed, error: DriftlineError, oldest: int) -> None:
        feed.over = True
        self.outbox.append((route, pack((_GONE, oldest, str(error)))))

    def _from(self, time: int) -> Iterator[Span | None]:
        # Without the feed: it would be kept by what it reads, with all that was read.
        yield from self._read(time)

    def _tell(self, route: bytes, feed: _Feed) -> None:
        feed.told = self._stored
        self.outbox.append((route, pack((_STORED, self._stored))))

    def _give(self, route: bytes, feed: _Feed, span: Span, data: bytes) -> int:
        feed.told = self._stored
        feed.time = max(feed.time, span.time)
        feed.room -= len(data)
        self.outbox.append((route, data))
        return len(data)


class DurableUpTo(NamedTuple):
    """All spans up to this time are durable."""

    time: int


class Truncated(NamedTuple):
    """The journal cannot give what was asked for. `oldest`: what it has; -1: that is not why."""

    oldest: int
    reason: str


class Subscription:
    """The other end: what a follower says to the journal, and what it hears.

    `name`: of the follower, for ever; `session`: of this connection; `since`: where it begins;
    `room`: bytes that may be under way, and one span beyond.
    """

    def __init__(self, name: str, session: str, since: int, room: int) -> None:
        self.time = since
        """All spans up to here have come."""
        self.stored = 0
        """All spans up to here are durable, as far as is known."""
        self._name = name
        self._session = session
        self._room = room
        self._taken = 0

    def follow(self, kept: int) -> bytes:
        """What is said at first, and then every FOLLOW_EVERY_S. `kept`: the follower can begin
        anew from this time."""
        return pack((_FOLLOW, self._session, self._name, self.time, kept, self._room))

    def hear(self, data: bytes) -> Span | DurableUpTo | Truncated:
        """A message of the journal."""
        match unpack(data):
            case (code, int(since), int(time), items, int(stored)) if code == _SPAN:
                self._taken += len(data)
                self.time, self.stored = max(self.time, time), max(self.stored, stored)
                return Span(since, time, [Item(*item) for item in items])  # type: ignore[attr-defined]
            case (code, int(time)) if code == _STORED:
                self.stored = max(self.stored, time)
                return DurableUpTo(time)
            case (code, int(oldest), str(reason)) if code == _GONE:
                return Truncated(oldest, reason)
        raise MalformedMessage("not a message of the journal")

    def credit(self) -> bytes | None:
        """What is said once much has been taken; None: not yet."""
        if self._taken < self._room // 4:
            return None
        taken, self._taken = self._taken, 0
        return pack((_CREDIT, self._session, taken))


def _span(span: Span, stored: int) -> bytes:
    items = [(item.label, item.sink, item.value) for item in span.items]
    return pack((_SPAN, span.since, span.time, items, stored))
