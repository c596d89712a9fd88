"""A view's host, where the schedules of `test_schedules` do not come."""

from collections.abc import Iterator
from itertools import count

from driftline.engine.errors import Unavailable
from driftline.engine.wire.bundles import Item
from driftline.serve.errors import NoLongerRetained
from driftline.serve.hosting.feeds import ROOM_BYTES, Feeds, Following
from driftline.serve.hosting.host import Pace, ViewHost
from driftline.serve.journal import Span
from tests.serve.hosting.world import Recording

SPAN = Span(0, 5, [Item((3, 0), 0, "a")])


class Follower:
    """A host, and the feeds of a journal that cannot be read as long as there is an `error`."""

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        clock = count()
        following = Following("v-0", "session", 0, ROOM_BYTES)
        parts = Recording(), following, 0, Pace(1.0, 5, 10), lambda: None
        self.host = ViewHost("v-0", *parts, lambda: next(clock) / 1e4)

        def read(since: int) -> Iterator[Span]:
            if self.error is not None:
                raise self.error
            yield SPAN

        self.feeds = Feeds(read)

    def exchange(self, now: float) -> None:
        """Let each say to the other what it has to say."""
        self.host.now = now
        self.host.tick(now)
        for data in self.host.to_journal:
            self.feeds.take(b"route", data, now)
        self.host.to_journal.clear()
        self.feeds.turn(now)
        for _, data in self.feeds.outbox:
            self.host.hear(data)
        self.feeds.outbox.clear()
        self.feeds.turn(now)


def test_a_journal_that_cannot_be_read_for_a_while_is_followed_again() -> None:
    """As on a full disk, where it cannot store what it has taken."""
    follower = Follower(Unavailable("no space left"))
    for now in (0.0, 0.3, 0.6):
        follower.exchange(now)
    assert follower.host.lost is None
    assert follower.host.view.time == 0
    follower.error = None
    follower.exchange(0.9)
    assert follower.host.view.time == 5


def test_a_journal_that_does_not_go_back_so_far_ends_the_process() -> None:
    follower = Follower(NoLongerRetained("gone", 7))
    follower.exchange(0.0)
    assert follower.host.lost is not None
    assert follower.host.lost.oldest == 7
