"""Feeds: send the spans of the journal to followers in other processes.

Input, at the journal: *follow* messages (session, name, start time, restart time, window in bytes)
and *credit* messages (number of processed bytes) of followers; each span when it is forwarded; the
*durable time*, below which all outputs are durable. Output: spans, and the durable time.

Invariants: the spans of a feed are contiguous from the requested time on. The bytes in flight to
a follower exceed its window by one span at most. So a slow follower delays no other follower, and
the journal stores only a read position for it.

A feed is *live* while the journal has sent it every span so far. Then it gets each new span before
the span is stored. A feed that is behind gets stored spans until it has caught up. Each span
carries the durable time. If the durable time has grown since the last message to a live feed, the
journal answers a follow message with the durable time. A live feed gets a heartbeat once a second.
Messages are lost if one of the two processes dies. So a follower repeats its follow message, and a
journal that does not know the session starts a new feed.

A turn reads a limited number of bytes, and serves the feeds that are behind round-robin. *Streams*
are feeds of HTTP clients, with small windows. They share a separate budget, so that many streams do
not slow down the barriers, the views and the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import RetentionExceeded
from driftline.serve.journal import Span

WINDOW_BYTES = 1 << 24
"""Window of a view or the gateway: maximum bytes in flight; one span may exceed it."""

STREAM_BYTES = 1 << 17
"""Window of a stream: smaller, since there may be many streams; one span may exceed it."""

FOLLOW_EVERY_S = 0.25
"""Interval in seconds at which a follower sends a follow message."""

FOLLOWER_TIMEOUT_S = 5.0
"""The journal drops the feed of a follower that is silent for this many seconds. The next follow
message starts a new feed."""

HEARTBEAT_EVERY_S = 1.0
"""Heartbeat interval of a live feed in seconds."""

TURN_BYTES = 1 << 17
"""Bytes that a turn reads for all feeds except streams (about 10 ms); one span may exceed it."""

TURN_STREAM_BYTES = 1 << 16
"""Bytes that a turn reads for all streams; one span may exceed it."""

STEP_BYTES = 1 << 10
"""Minimum cost of a read step, in bytes of the budget of a turn, even if it yields no span."""

RETAINS_NOTHING = -1
"""The `restart_time` of a follower that needs no part of the journal retained."""

_FOLLOW, _CREDIT, _SPAN, _DURABLE, _ENDED = range(5)


class _Feed:
    """The feed of one follower: its read position and its credit."""

    def __init__(self, session: str, time: int, window_bytes: int) -> None:
        self.session = session
        self.time = time
        """T: all outputs below it were sent."""
        self.credit_bytes = window_bytes
        """Bytes that may still be sent; negative after a large span."""
        self.is_stream = window_bytes < WINDOW_BYTES
        self.heard_at = 0.0
        """Time of the follower's last message."""
        self.heartbeat_at = 0.0
        """Time of the last heartbeat."""
        self.sent_durable_time = -1
        """The last durable time that was sent."""
        self.reader: Iterator[Span | None] | None = None
        """The reader of stored spans; None if the feed is live."""
        self.has_failed = False
        """Whether the feed has ended with an error, which was sent."""

    @property
    def is_due(self) -> bool:
        """Whether the feed is behind and has credit."""
        return self.reader is not None and self.credit_bytes > 0 and not self.has_failed


class Feeds:
    """The feeds of one journal.

    `read`: yields the stored spans from a time on, in small steps; None for a step without a span.
    """

    def __init__(self, read: Callable[[int], Iterator[Span | None]]) -> None:
        self.outbox: list[tuple[bytes, bytes]] = []
        """(route of a follower, message)"""
        self.restart_times: dict[str, int] = {}
        """Name of a follower -> the time from which it would read after a restart."""
        self._read = read
        self._feeds: dict[bytes, _Feed] = {}
        """Route -> feed; the least recently served feed first."""
        self._durable_time = 0

    @property
    def follower_count(self) -> int:
        """The number of followers."""
        return len(self._feeds)

    def take(self, route: bytes, data: bytes, now: float) -> None:
        """Handle a message of a follower. Raises MalformedMessage."""
        feed = self._feeds.get(route)
        match unpack(data):
            case (
                code,
                str(session),
                str(name),
                int(since),
                int(restart_time),
                int(window_bytes),
            ) if code == _FOLLOW:
                if restart_time != RETAINS_NOTHING:
                    self.restart_times[name] = restart_time
                if feed is None or feed.session != session:
                    feed = self._feeds[route] = _Feed(session, since, window_bytes)
                    feed.reader = self._read_from(since)
                feed.heard_at = now
                if feed.reader is None and feed.sent_durable_time < self._durable_time:
                    self._send_durable_time(route, feed)
            case (code, str(session), int(count)) if code == _CREDIT:
                if feed is not None and feed.session == session:
                    feed.credit_bytes += count
                    feed.heard_at = now
            case _:
                raise MalformedMessage("not a message of a follower")

    def forward(self, span: Span) -> None:
        """Send a new span, which may not be stored yet, to the live feeds."""
        data = b""
        for route, feed in self._feeds.items():
            if feed.reader is not None:
                continue  # the feed is behind, and will read this span from the files
            if feed.credit_bytes > 0 and feed.time >= span.since:
                data = data or _encode_span(span, self._durable_time)
                self._send_span(route, feed, span, data)
            else:
                feed.reader = self._read_from(feed.time)

    def set_durable_time(self, time: int) -> None:
        """Note that all outputs below this time are durable."""
        self._durable_time = time

    def remove_follower(self, route: bytes) -> None:
        """Remove the feed of a follower that has disconnected."""
        self._feeds.pop(route, None)

    def turn(self, now: float) -> bool:
        """Send heartbeats, and read for feeds that are behind; drop failed and silent feeds.

        Returns whether a feed that is behind has credit left, so that another turn is due.
        """
        for route, feed in list(self._feeds.items()):
            if now - feed.heard_at > FOLLOWER_TIMEOUT_S or feed.has_failed:
                self.remove_follower(route)
        for route, feed in self._feeds.items():
            if feed.reader is None and now - feed.heartbeat_at >= HEARTBEAT_EVERY_S:
                feed.heartbeat_at = now
                self._send_durable_time(route, feed)
        due = [(route, feed) for route, feed in self._feeds.items() if feed.is_due]
        more = self._read_due([pair for pair in due if not pair[1].is_stream], TURN_BYTES)
        more |= self._read_due([pair for pair in due if pair[1].is_stream], TURN_STREAM_BYTES)
        return more

    def _read_due(self, due: Sequence[tuple[bytes, _Feed]], budget_bytes: int) -> bool:
        """Read about `budget_bytes` for feeds, round-robin. Return whether a feed is still due."""
        for route, feed in due:
            if budget_bytes <= 0:
                return True
            self._feeds[route] = self._feeds.pop(route)
            while budget_bytes > 0 and feed.is_due:
                budget_bytes -= max(STEP_BYTES, self._read_step(route, feed))
        return any(feed.is_due for _, feed in due)

    def _read_step(self, route: bytes, feed: _Feed) -> int:
        """Run one read step, and send its span. Return the number of bytes sent."""
        assert feed.reader is not None
        try:
            span = next(feed.reader)
            if span is None:
                return 0
            # A span that was read is durable, even if `_durable_time` is still smaller.
            data = _encode_span(span, max(span.time, self._durable_time))
            return self._send_span(route, feed, span, data)
        except StopIteration:
            feed.reader = None
            self._send_durable_time(route, feed)  # the only message if no span was missing
        except RetentionExceeded as error:
            self._fail(route, feed, error, error.oldest)
        except DriftlineError as error:
            self._fail(route, feed, error, -1)
        return 0

    def _fail(self, route: bytes, feed: _Feed, error: DriftlineError, oldest: int) -> None:
        feed.has_failed = True
        self.outbox.append((route, pack((_ENDED, oldest, str(error)))))

    def _read_from(self, time: int) -> Iterator[Span | None]:
        # This generator must not refer to its feed: they would form a reference cycle.
        yield from self._read(time)

    def _send_durable_time(self, route: bytes, feed: _Feed) -> None:
        feed.sent_durable_time = self._durable_time
        self.outbox.append((route, pack((_DURABLE, self._durable_time))))

    def _send_span(self, route: bytes, feed: _Feed, span: Span, data: bytes) -> int:
        feed.sent_durable_time = self._durable_time
        feed.time = max(feed.time, span.time)
        feed.credit_bytes -= len(data)
        self.outbox.append((route, data))
        return len(data)


class DurableUpTo(NamedTuple):
    """Message that all outputs below this time are durable; also the heartbeat of a live feed."""

    time: int


class FeedEnded(NamedTuple):
    """Message that ends a feed. `oldest`: the oldest retained time; -1: reading has failed."""

    oldest: int
    reason: str


class Subscription:
    """The follower's end of a feed: encodes its messages, and decodes those of the journal.

    `name`: the name of the follower, constant across restarts if the journal retains data for it;
    `session`: a unique id of this subscription; `since`: the time to start from; `window_bytes`:
    the window, which one span may exceed.
    """

    def __init__(self, name: str, session: str, since: int, window_bytes: int) -> None:
        self.time = since
        """T: all outputs below it have arrived."""
        self.durable_time = 0
        """All outputs below this time are durable, according to the journal."""
        self._name = name
        self._session = session
        self._window_bytes = window_bytes
        self._uncredited_bytes = 0

    def encode_follow(self, restart_time: int) -> bytes:
        """Encode a follow message, to be sent first and then every FOLLOW_EVERY_S.

        `restart_time`: the time from which the follower would read after a restart; the journal
        retains its outputs from this time on. RETAINS_NOTHING: no outputs are retained for it.
        """
        return pack(
            (_FOLLOW, self._session, self._name, self.time, restart_time, self._window_bytes)
        )

    def decode(self, data: bytes) -> Span | DurableUpTo | FeedEnded:
        """Decode a message of the journal. Raises MalformedMessage."""
        match unpack(data):
            case (code, int(since), int(time), items, int(durable_time)) if code == _SPAN:
                self._uncredited_bytes += len(data)
                self.time = max(self.time, time)
                self.durable_time = max(self.durable_time, durable_time)
                return Span(since, time, [Item(*item) for item in items])  # type: ignore[attr-defined]
            case (code, int(time)) if code == _DURABLE:
                self.durable_time = max(self.durable_time, time)
                return DurableUpTo(time)
            case (code, int(oldest), str(reason)) if code == _ENDED:
                return FeedEnded(oldest, reason)
        raise MalformedMessage("not a message of the journal")

    def encode_credit(self) -> bytes | None:
        """Encode the credit for received bytes; None if they are below a quarter of the window."""
        if self._uncredited_bytes < self._window_bytes // 4:
            return None
        count, self._uncredited_bytes = self._uncredited_bytes, 0
        return pack((_CREDIT, self._session, count))


def _encode_span(span: Span, durable_time: int) -> bytes:
    items = [(item.label, item.sink, item.value) for item in span.items]
    return pack((_SPAN, span.since, span.time, items, durable_time))
