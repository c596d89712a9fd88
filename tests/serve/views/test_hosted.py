"""Followers: each output once, in order."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from hypothesis import given

from driftline.engine.wire.bundles import Item
from driftline.serve.journal import Span
from driftline.serve.views.hosted import apply_span
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
    for _ in range(30):
        since = chance.randint(0, 39)
        given = span(since, chance.randint(since, 40))
        before = view.time
        assert apply_span(view, given) == (since <= before)
        assert view.time == (max(before, given.time) if since <= before else before)
        assert view.items == span(0, view.time).items
