"""A view's host, where the schedules of `test_schedules` do not come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from statistics import median

import pytest

from driftline.engine.errors import Unavailable
from driftline.engine.wire.bundles import Item
from driftline.serve.errors import ApiError, RetentionExceeded
from driftline.serve.hosting.feeds import WINDOW_BYTES, Feeds, Subscription
from driftline.serve.hosting.host import (
    APPLY_ITEMS,
    APPLY_S,
    CALM_S,
    CHECKPOINT_ITEMS_MIN,
    DEFERRALS_MAX,
    SLICE_S,
    CheckpointSchedule,
    ViewHost,
)
from driftline.serve.hosting.view_client import Request, ViewTime, decode_answer, encode_request
from driftline.serve.journal import Span
from driftline.serve.views.checkpoint import Retention
from driftline.serve.views.hosted import Answer, PauseHook, Question, no_pause
from tests.serve.hosting.world import Recording


class Live:
    """A host that a journal's feed leads to; its clock goes on by a millisecond for each output.

    `read`: of the journal. Checkpoints are due after 1,000 outputs.
    """

    def __init__(
        self,
        read: Callable[[int], Iterator[Span]] = lambda since: iter(()),
        view: Recording | None = None,
    ) -> None:
        self.feeds = Feeds(read)
        self.view = view or Slow()
        following = Subscription("v-0", "session", 0, WINDOW_BYTES)
        retention = Retention(10, lambda: 0.0)
        parts = self.view, following, 0, CheckpointSchedule(100.0, 1_000), retention
        self.host = ViewHost("v-0", *parts, lambda: None, lambda: self.view.clock_s)
        self.follow()
        self.feeds.turn(0.0)

    def follow(self, now: float = 0.0) -> None:
        """The host says that it is there."""
        self.feeds.take(b"route", self.host.subscription.encode_follow(0), now)

    def ask(self, number: int, question: Question, asker: str = "") -> None:
        data = encode_request(Request(number, question, 0, 9.0, asker))
        self.host.handle_client_message(b"asker", data)

    def deliver(self) -> None:
        """What the feed has given comes, as far as the host takes it."""
        while self.feeds.outbox and not self.host.busy:
            self.host.handle_journal_message(self.feeds.outbox.pop(0)[1])

    def saves(self) -> bool:
        """Whether a checkpoint is being written."""
        return self.host.job is not None

    def turn(self, now: float = 0.0) -> bool:
        self.host.now = now
        self.deliver()
        return self.host.turn()


def test_a_journal_that_cannot_be_read_for_a_while_is_followed_again() -> None:
    """As on a full disk, where it cannot store what it has taken."""
    errors = [Unavailable("no space left")] * 3

    def read(since: int) -> Iterator[Span]:
        if errors:
            raise errors.pop()
        yield span(0, 5)

    live = Live(read)
    for now in (0.0, 0.3, 0.6):
        live.turn(now)
        assert live.host.truncated is None
        assert live.view.time == 0
        live.feeds.turn(now)  # it forgets the feed that has ended
        live.follow(now)
        live.feeds.turn(now)
    live.turn(0.9)
    assert live.view.time == 5


def test_trimmed_journal_stops_a_host_that_needs_older_records() -> None:
    def read(since: int) -> Iterator[Span]:
        raise RetentionExceeded("gone", 7)

    live = Live(read)
    live.turn()
    assert live.host.truncated is not None
    assert live.host.truncated.oldest == 7
    assert "needs a checkpoint at record 7 or later" in live.host.truncated.reason


class Slow(Recording):
    """A view that takes a millisecond for an output."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        super().apply(time, items)
        self.clock_s += len(items) / 1000


def span(since: int, time: int) -> Span:
    """A span with an output of each time."""
    return Span(since, time, [Item((each, 0), 0, "a") for each in range(since, time)])


def test_query_is_answered_while_a_large_span_is_applied() -> None:
    live = Live()
    live.feeds.forward(span(0, 600))
    live.deliver()
    answered_at = []
    for number in range(1, 20):
        live.ask(number, {"what": "count"})
        before = live.view.clock_s
        assert live.turn() == (live.view.time < 600)
        assert live.view.clock_s - before <= 2 * APPLY_S + APPLY_ITEMS / 1000
        reached, answered = (decode_answer(data) for _, data in live.host.answers)
        live.host.answers.clear()
        assert reached == ViewTime(live.view.time), "an asker receives T first"
        assert not isinstance(answered, ViewTime)
        _, answer = answered
        assert not isinstance(answer, ApiError)
        answered_at.append(answer["at"])
    assert len(set(answered_at)) == len(answered_at)
    while live.turn():
        pass
    assert [item.label[0] for item in live.view.items] == list(range(600))


class LongAnswers(Recording):
    """A view that takes so many milliseconds for an answer as the question says."""

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        match question:
            case {"ms": int(ms)}:
                for _ in range(ms):
                    self.clock_s += 0.001
                    pause()
        return super().ask(question)


def test_long_query_runs_in_slices_between_other_queries() -> None:
    """Two askers always have another long question, and a third one asks short ones."""
    view = LongAnswers()
    live = Live(view=view)
    host = live.host
    numbers, sent_s, took_s = count(1), dict[int, float](), dict[str, list[float]]()
    asker_of: dict[int, str] = {}

    def ask(asker: str, ms: int) -> None:
        number = next(numbers)
        asker_of[number], sent_s[number] = asker, view.clock_s
        live.ask(number, {"what": "count", "ms": ms}, asker)

    def exchange() -> None:
        for _, data in host.answers:
            answer = decode_answer(data)
            if not isinstance(answer, ViewTime):
                asker = asker_of[answer[0]]
                took_s.setdefault(asker, []).append(view.clock_s - sent_s[answer[0]])
                ask(asker, 1 if asker == "short" else 300)
        host.answers.clear()

    host.exchange = exchange
    ask("long", 300)
    ask("other", 300)
    ask("short", 1)
    while view.clock_s < 20:
        host.turn()
        exchange()
    assert median(took_s["short"]) <= 2 * SLICE_S
    assert max(took_s["short"]) <= 0.1, (
        "once: the time that it used while an asker waited for another"
    )
    assert min(len(took_s["long"]), len(took_s["other"])) > 10


def test_checkpoint_starts_under_a_continuous_stream_of_spans() -> None:
    """What comes next is not applied before, so the view is not ahead of what is durable."""
    live = Live()
    time = 0
    while not live.saves():
        for _ in range(3):
            live.feeds.forward(span(time, time + 50))
            time += 50
        live.feeds.set_durable_time(time)
        live.feeds.forward(span(time, time + 50))  # in flight together with the earlier messages
        time += 50
        live.turn()
    assert live.view.time == live.host.subscription.durable_time
    assert 1_000 <= live.view.time < 1_200


def test_lagging_view_still_takes_checkpoints() -> None:
    """It is not told what is durable; but it is given nothing else."""
    live = Live(lambda since: (span(time, time + 50) for time in range(0, 5_000, 50)))
    while not live.saves():
        live.turn()
    assert 1_000 <= live.view.time < 1_000 + APPLY_ITEMS + 50


@pytest.mark.parametrize("ending", [False, True])
@pytest.mark.parametrize("outputs", [CHECKPOINT_ITEMS_MIN - 1, CHECKPOINT_ITEMS_MIN])
def test_checkpoint_starts_when_idle_or_at_shutdown(outputs: int, ending: bool) -> None:
    live = Live()
    live.feeds.forward(span(0, outputs))
    while live.turn():
        pass
    live.feeds.set_durable_time(outputs)
    assert not live.feeds.outbox  # nobody is woken up for it
    live.follow()
    live.turn()
    assert not live.saves()
    live.host.is_ending = ending
    live.turn(0.0 if ending else CALM_S)
    assert live.saves() == (outputs == CHECKPOINT_ITEMS_MIN)
    assert live.host.can_end == (outputs < CHECKPOINT_ITEMS_MIN)
    if live.saves():
        live.host.finish_job(True)
        assert live.host.can_end


class Settling(Recording):
    """A view that notes what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def apply(self, time: int, items: Sequence[Item]) -> None:
        super().apply(time, items)
        self.done.append("apply")

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Mapping[str, object]:
        self.done.append("ask")
        return super().ask(question)

    def do_deferred_work(self) -> None:
        self.done.append("deferred work")


def test_answers_pause_while_the_send_buffer_is_full() -> None:
    live = Live(view=Settling())
    room = [True]
    live.host.has_room = lambda: room[0] and not live.host.answers
    for number in (1, 2):
        live.ask(number, {"what": "count"})
    live.turn()
    assert len(live.host.answers) == 1
    live.host.answers.clear()
    room[0] = False
    while live.turn():  # which ends: it does not wait for room in a circle
        pass
    assert not live.host.answers
    room[0] = True
    live.turn()
    assert len(live.host.answers) == 1


def test_deferred_work_runs_despite_constant_queries() -> None:
    view = Settling()
    live = Live(view=view)
    for number in range(1, 3 * (DEFERRALS_MAX + 1) + 1):
        live.ask(number, {"what": "count"})
        live.turn()
    assert view.done == [*["ask"] * (DEFERRALS_MAX + 1), "deferred work"] * 3
