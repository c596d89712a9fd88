"""Feeds: how spans of the journal reach those who follow it in other processes.

Takes, at the journal: `follow` (who, from which time on, how many bytes may be under way), `credit`
(bytes that were taken), each span as it is forwarded, and what is stored. Gives: spans, and how far
the journal is durable.
Invariants: the spans of a feed follow each other without a gap, from the time on that was asked
for. No more bytes are under way to a follower than it has room for: one that is slow holds nobody
up, and the journal keeps nothing for it but a place to read on from.

A feed is *live* while it has had every span: it is given each new one before that is stored. One
that is behind is given what is stored, until there is no more of it; then it is told what is
durable, as all that are live are. Messages may be lost with either process: a follower says
`follow` again and again, and begins anew if that is news.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import NoLongerRetained
from driftline.serve.journal import Span

ROOM_BYTES = 1 << 24
"""Bytes that may be under way to a follower, and one span beyond."""

FOLLOW_EVERY_S = 0.25
"""How often a follower says that it is there."""

GONE_AFTER_S = 5.0
"""A follower that is silent for longer is given nothing more; when it speaks it begins anew."""

AT_ONCE = 64
"""Spans that are read for one follower before another one's turn."""

_FOLLOW, _CREDIT, _SPAN, _STORED, _GONE = range(5)


class _Feed:
    """A follower; `stay`: the outputs from this time on have to be retained for it."""

    def __init__(self, session: str, time: int, room: int) -> None:
        self.session = session
        self.time = time
        """It has been given all spans up to here."""
        self.room = room
        self.heard_at = 0.0
        self.reading: Iterator[Span] | None = None
        """None: it is live."""
        self.over = False


class Feeds:
    """The feeds of one journal. `read`: gives the spans that are stored, from a time on."""

    def __init__(self, read: Callable[[int], Iterator[Span]]) -> None:
        self.outbox: list[tuple[bytes, bytes]] = []
        """(route of a follower, message)"""
        self.kept: dict[str, int] = {}
        """Name of a follower -> it can begin from this time, if it has to begin anew."""
        self._read = read
        self._feeds: dict[bytes, _Feed] = {}
        self._stored = 0

    def take(self, route: bytes, data: bytes, now: float) -> None:
        """Take a message of a follower. Raises MalformedMessage."""
        feed = self._feeds.get(route)
        match unpack(data):
            case (code, str(session), str(name), int(since), int(kept)) if code == _FOLLOW:
                self.kept[name] = kept
                if feed is None or feed.session != session:
                    feed = self._feeds[route] = _Feed(session, since, ROOM_BYTES)
                    feed.reading = self._from(feed)
                feed.heard_at = now
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
                data = data or _span(span)
                self._give(route, feed, span, data)
            else:
                feed.reading = self._from(feed)

    def stored(self, time: int) -> None:
        """All spans up to this time are durable."""
        self._stored = time
        data = pack((_STORED, time))
        for route, feed in self._feeds.items():
            if feed.reading is None:
                self.outbox.append((route, data))

    def turn(self, now: float) -> bool:
        """Read on for those that are behind. Returns whether there is more to read at once."""
        more = False
        for route, feed in list(self._feeds.items()):
            if now - feed.heard_at > GONE_AFTER_S or feed.over:
                del self._feeds[route]
            elif feed.reading is not None and feed.room > 0:
                more |= self._read_on(route, feed)
        return more

    def _read_on(self, route: bytes, feed: _Feed) -> bool:
        assert feed.reading is not None
        try:
            for _ in range(AT_ONCE):
                if feed.room <= 0:
                    return False
                span = next(feed.reading, None)
                if span is None:
                    feed.reading = None
                    # So one that lacks nothing hears from us, too.
                    self.outbox.append((route, pack((_STORED, self._stored))))
                    return False
                self._give(route, feed, span, _span(span))
        except NoLongerRetained as error:
            self._end(route, feed, error, error.oldest)
        except DriftlineError as error:
            self._end(route, feed, error, -1)
        return True

    def _end(self, route: bytes, feed: _Feed, error: DriftlineError, oldest: int) -> None:
        feed.over = True
        self.outbox.append((route, pack((_GONE, oldest, str(error)))))

    def _from(self, feed: _Feed) -> Iterator[Span]:
        yield from self._read(feed.time)

    def _give(self, route: bytes, feed: _Feed, span: Span, data: bytes) -> None:
        feed.time = max(feed.time, span.time)
        feed.room -= len(data)
        self.outbox.append((route, data))


class Stored(NamedTuple):
    """All spans up to this time are durable."""

    time: int


class Lost(NamedTuple):
    """The journal cannot give what was asked for. `oldest`: what it has; -1: that is not why."""

    oldest: int
    reason: str


class Following:
    """The other end: what a follower says to the journal, and what it hears.

    `name`: of the follower, for ever; `session`: of this connection; `since`: where it begins.
    """

    def __init__(self, name: str, session: str, since: int) -> None:
        self.time = since
        """All spans up to here have come."""
        self.stored = 0
        """All spans up to here are durable, as far as is known."""
        self._name = name
        self._session = session
        self._taken = 0

    def follow(self, kept: int) -> bytes:
        """What is said at first, and then every FOLLOW_EVERY_S. `kept`: the follower can begin
        anew from this time."""
        return pack((_FOLLOW, self._session, self._name, self.time, kept))

    def hear(self, data: bytes) -> Span | Stored | Lost:
        """A message of the journal."""
        match unpack(data):
            case (code, int(since), int(time), items) if code == _SPAN:
                self._taken += len(data)
                self.time = max(self.time, time)
                return Span(since, time, [Item(*item) for item in items])  # type: ignore[attr-defined]
            case (code, int(time)) if code == _STORED:
                self.stored = max(self.stored, time)
                return Stored(time)
            case (code, int(oldest), str(reason)) if code == _GONE:
                return Lost(oldest, reason)
        raise MalformedMessage("not a message of the journal")

    def credit(self) -> bytes | None:
        """What is said once much has been taken; None: not yet."""
        if self._taken < ROOM_BYTES // 4:
            return None
        taken, self._taken = self._taken, 0
        return pack((_CREDIT, self._session, taken))


def _span(span: Span) -> bytes:
    items = [(item.label, item.sink, item.value) for item in span.items]
    return pack((_SPAN, span.since, span.time, items))
