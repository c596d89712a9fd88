"""Feeds of a journal with many followers: bounds of a turn, and removal of followers."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

from driftline.deploy.runtime.config import ProcessConfig
from driftline.engine.wire.bundles import Item
from driftline.serve.hosting import feeds
from driftline.serve.hosting.config import ServiceConfig
from driftline.serve.hosting.feeds import (
    RETAINS_NOTHING,
    STREAM_BYTES,
    WINDOW_BYTES,
    Feeds,
    Subscription,
)
from driftline.serve.hosting.ipc import IpcServer
from driftline.serve.hosting.journal_process import FeedServer, JournalServer
from driftline.serve.journal import Span
from tests.serve.journal.runs import open_journal

SPANS = 1_000
SPAN_BYTES = 1 << 10
"""Upper bound of the size of a span as a message."""


def spans(since: int) -> Iterator[Span]:
    for time in range(since, SPANS):
        yield Span(time, time + 1, [Item((time, 0), 0, "x" * 1_000)])


class IdleFollowers:
    """Feeds with followers that send a follow message in every turn but grant no credit."""

    def __init__(self, read: Callable[[int], Iterator[Span | None]] = spans) -> None:
        self.feeds = Feeds(read)
        self.now = 0.0
        self.sent = Counter[bytes]()
        """Route -> bytes sent so far."""
        self.subscriptions: dict[bytes, Subscription] = {}

    def add(self, route: bytes, window_bytes: int, since: int = 0) -> None:
        self.subscriptions[route] = Subscription(route.decode(), "session", since, window_bytes)

    def turn(self, elapsed_s: float = 0.1) -> Counter[bytes]:
        """Run one turn, and return how many bytes were sent on each route."""
        self.now += elapsed_s
        for route, subscription in self.subscriptions.items():
            self.feeds.take(route, subscription.encode_follow(RETAINS_NOTHING), self.now)
        self.feeds.turn(self.now)
        sent = Counter[bytes]()
        for route, data in self.feeds.outbox:
            sent[route] += len(data)
        self.feeds.outbox.clear()
        self.sent += sent
        return sent


def test_turn_is_bounded_for_many_streams_and_reserves_a_share_for_views() -> None:
    followers = IdleFollowers()
    followers.add(b"view", WINDOW_BYTES)
    streams = [b"stream-%d" % n for n in range(100)]
    for route in streams:
        followers.add(route, STREAM_BYTES)
    for turn in range(102):
        sent = followers.turn()
        of_view = sent.pop(b"view", 0)
        assert sent.total() <= feeds.TURN_STREAM_BYTES + SPAN_BYTES
        if turn < SPANS * 1_000 // feeds.TURN_BYTES:
            assert of_view > 0.9 * feeds.TURN_BYTES
    assert min(followers.sent[route] for route in streams) > 0, "a stream was starved"
    for _ in range(150):
        followers.turn()
    assert {followers.sent[route] for route in streams} <= set(
        range(STREAM_BYTES, STREAM_BYTES + SPAN_BYTES)
    )


def test_caught_up_follower_gets_new_span_at_once_despite_many_readers() -> None:
    followers = IdleFollowers()
    followers.add(b"view", WINDOW_BYTES, since=SPANS)
    for n in range(300):
        followers.add(b"stream-%d" % n, STREAM_BYTES)
    followers.turn()
    followers.feeds.forward(Span(SPANS, SPANS + 1, []))
    assert [route for route, _ in followers.feeds.outbox] == [b"view"]


def test_turn_is_bounded_while_seeking_the_start_of_a_stream() -> None:
    steps = 0

    def seek_endlessly(since: int) -> Iterator[Span | None]:
        nonlocal steps
        for steps in range(1, 1_000_000):  # noqa: B007
            yield None

    followers = IdleFollowers(seek_endlessly)
    followers.add(b"stream", STREAM_BYTES)
    followers.turn()
    assert steps == feeds.TURN_STREAM_BYTES // feeds.STEP_BYTES


def test_silent_follower_is_dropped_and_leaves_no_state() -> None:
    followers = IdleFollowers()
    for n in range(10):
        followers.add(b"stream-%d" % n, STREAM_BYTES)
    followers.turn()
    followers.subscriptions.clear()
    assert followers.turn(feeds.FOLLOWER_TIMEOUT_S).total() > 0
    assert followers.turn().total() == 0
    assert (followers.feeds.follower_count, followers.feeds.restart_times) == (0, {})


def test_feed_is_removed_when_its_client_disconnects(tmp_path: Path) -> None:
    with TemporaryDirectory() as sockets, closing(open_journal(tmp_path)) as journal:
        process = ProcessConfig(*("", 1, "", "", 1.0, ""), sockets, *("", "", False))
        config = ServiceConfig(process, str(tmp_path), ())
        with (
            closing(FeedServer(JournalServer(journal), config)) as feeds,
            closing(IpcServer(lambda route: None)) as client,
        ):
            stream = client.connect(config.feeds_socket)
            assert stream is not None
            client.send(
                stream,
                Subscription("stream", "session", 0, STREAM_BYTES).encode_follow(RETAINS_NOTHING),
            )
            while not feeds.follower_count:
                assert select([feeds.ipc], [], [], 5.0)[0]
                feeds.handle_input()
            feeds.turn()
            assert select([client], [], [], 5.0)[0]
            assert client.next() is not None
            client.close()
            assert select([feeds.ipc], [], [], 5.0)[0]
            feeds.handle_input()
            assert feeds.follower_count == 0
