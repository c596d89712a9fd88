"""Followers: each output once, in order, and those who wait are called in time."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from hypothesis import given

from driftline.engine.wire.bundles import Item
from driftline.serve.journal import Span
from driftline.serve.views.hosted import ViewUpdater
from tests.serve.journal.runs import chances


class Seen:
    """A view of all outputs, in the order in which they came."""

    def __init__(self) -> None:
        self.time = 0
        self.items: list[Item] = []

    def apply(self, time: int, items: Sequence[Item]) -> None:
        assert time > self.time
        assert all(self.time <= item.label[0] < time for item in items)
        self.items += items
        self.time = time

    def save(self) -> Iterator[bytes]:
        raise NotImplementedError

    def load(self, parts: Iterable[bytes]) -> None:
        raise NotImplementedError


ITEMS = [Item((time, 0, child), 0, "x") for time in range(0, 40, 2) for child in range(time % 3)]


def span(since: int, time: int) -> Span:
    return Span(since, time, [item for item in ITEMS if since <= item.label[0] < time])


@given(chances)
def test_repeated_spans_are_skipped_and_gaps_are_rejected(chance: Random) -> None:
    view = Seen()
    follower = ViewUpdater(view)
    for _ in range(30):
        since = chance.randint(0, 39)
        given = span(since, chance.randint(since, 40))
        before = view.time
        assert follower.take(given) == (since <= before)
        assert view.time == (max(before, given.time) if since <= before else before)
        assert view.items == span(0, view.time).items


@given(chances)
def test_waiter_is_called_once_when_its_time_is_applied(chance: Random) -> None:
    view = Seen()
    follower = ViewUpdater(view)
    called: list[tuple[int, int]] = []
    expected: list[tuple[int, int]] = []
    waiting: dict[int, int] = {}
    for number in range(60):
        match chance.choice(("wait", "cancel", "go on")):
            case "wait":
                after = chance.randint(0, 50)
                ticket = follower.wait(after, lambda a=after, n=number: called.append((a, n)))  # type: ignore[misc]
                if after > view.time:
                    waiting[ticket] = after
                    expected.append((after, number))
                else:
                    assert called.pop() == (after, number)
            case "cancel" if waiting:
                ticket = chance.choice(sorted(waiting))
                position = sorted(waiting).index(ticket)
                del waiting[ticket], expected[position]
                follower.cancel(ticket)
                follower.cancel(ticket)
            case _:
                time = view.time + chance.randint(0, 4)
                follower.take(span(view.time, time))
                due = sorted(each for each in expected if each[0] <= time)
                assert called == due
                called.clear()
                expected = [each for each in expected if each[0] > time]
                waiting = {ticket: after for ticket, after in waiting.items() if after > time}
