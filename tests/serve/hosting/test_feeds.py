"""The feeds of a journal that many follow: what a turn does for them, and that they end."""

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
from tests.serve.journal.runs import opened

SPANS = 1_000
SPAN_BYTES = 1 << 10
"""Of a span as a message, no more."""


def spans(since: int) -> Iterator[Span]:
    for time in range(since, SPANS):
        yield Span(time, time + 1, [Item((time, 0), 0, "x" * 1_000)])


class Crowd:
    """The feeds, with followers that take nothing; they say that they are there in every turn."""

    def __init__(self, read: Callable[[int], Iterator[Span | None]] = spans) -> None:
        self.feeds = Feeds(read)
        self.now = 0.0
        self.sent = Counter[bytes]()
        """Route -> bytes."""
        self.following: dict[bytes, Subscription] = {}

    def comes(self, route: bytes, room: int, since: int = 0) -> None:
        self.following[route] = Subscription(route.decode(), "session", since, room)

    def turn(self, within_s: float = 0.1) -> Counter[bytes]:
        """Run one turn, and return how many bytes were sent on each route."""
        self.now += within_s
        for route, following in self.following.items():
            self.feeds.take(route, following.encode_follow(RETAINS_NOTHING), self.now)
        self.feeds.turn(self.now)
        sent = Counter[bytes]()
        for route, data in self.feeds.outbox:
            sent[route] += len(data)
        self.feeds.outbox.clear()
        self.sent += sent
        return sent


def test_turn_is_bounded_for_many_streams_and_reserves_a_share_for_views() -> None:
    crowd = Crowd()
    crowd.comes(b"view", WINDOW_BYTES)
    streams = [b"stream-%d" % n for n in range(100)]
    for route in streams:
        crowd.comes(route, STREAM_BYTES)
    for turn in range(102):
        sent = crowd.turn()
        of_view = sent.pop(b"view", 0)
        assert sent.total() <= feeds.TURN_STREAM_BYTES + SPAN_BYTES
        if turn < SPANS * 1_000 // feeds.TURN_BYTES:
            assert of_view > 0.9 * feeds.TURN_BYTES
    assert min(crowd.sent[route] for route in streams) > 0, "one never had its turn"
    for _ in range(150):
        crowd.turn()
    assert {crowd.sent[route] for route in streams} <= set(
        range(STREAM_BYTES, STREAM_BYTES + SPAN_BYTES)
    )


def test_caught_up_follower_gets_new_span_at_once_despite_many_readers() -> None:
    crowd = Crowd()
    crowd.comes(b"view", WINDOW_BYTES, since=SPANS)
    for n in range(300):
        crowd.comes(b"stream-%d" % n, STREAM_BYTES)
    crowd.turn()
    crowd.feeds.forward(Span(SPANS, SPANS + 1, []))
    assert [route for route, _ in crowd.feeds.outbox] == [b"view"]


def test_turn_is_bounded_while_seeking_the_start_of_a_stream() -> None:
    steps = 0

    def far(since: int) -> Iterator[Span | None]:
        nonlocal steps
        for steps in range(1, 1_000_000):  # noqa: B007
            yield None

    crowd = Crowd(far)
    crowd.comes(b"stream", STREAM_BYTES)
    crowd.turn()
    assert steps == feeds.TURN_STREAM_BYTES // feeds.STEP_BYTES


def test_silent_follower_is_dropped_and_leaves_no_state() -> None:
    crowd = Crowd()
    for n in range(10):
        crowd.comes(b"stream-%d" % n, STREAM_BYTES)
    crowd.turn()
    crowd.following.clear()
    assert crowd.turn(feeds.FOLLOWER_TIMEOUT_S).total() > 0
    assert crowd.turn().total() == 0
    assert (crowd.feeds.follower_count, crowd.feeds.restart_times) == (0, {})


def test_a_stream_ends_in_the_journal_when_its_client_closes(tmp_path: Path) -> None:
    with TemporaryDirectory() as sockets, closing(opened(tmp_path)) as journal:
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
