"""Cases of the host of a view that the random schedules of `test_schedules` do not reach."""

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
from tests.serve.hosting.simulation import RecordingView


class HostHarness:
    """Host that follows feeds; by default its clock advances by a millisecond per output.

    `read`: reads the journal. A checkpoint is due after 1,000 outputs.
    """

    def __init__(
        self,
        read: Callable[[int], Iterator[Span]] = lambda since: iter(()),
        view: RecordingView | None = None,
    ) -> None:
        self.feeds = Feeds(read)
        self.view = view or SlowView()
        subscription = Subscription("v-0", "session", 0, WINDOW_BYTES)
        retention = Retention(10, lambda: 0.0)
        arguments = self.view, subscription, 0, CheckpointSchedule(100.0, 1_000), retention
        self.host = ViewHost("v-0", *arguments, lambda: None, lambda: self.view.clock_s)
        self.follow()
        self.feeds.turn(0.0)

    def follow(self, now: float = 0.0) -> None:
        """Send the follow message of the host to the feeds."""
        self.feeds.take(b"route", self.host.subscription.encode_follow(0), now)

    def ask(self, number: int, question: Question, client: str = "") -> None:
        data = encode_request(Request(number, question, 0, 9.0, client))
        self.host.handle_client_message(b"client", data)

    def deliver(self) -> None:
        """Deliver messages of the feeds until the host is busy."""
        while self.feeds.outbox and not self.host.busy:
            self.host.handle_journal_message(self.feeds.outbox.pop(0)[1])

    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        return self.host.job is not None

    def turn(self, now: float = 0.0) -> bool:
        self.host.now = now
        self.deliver()
        return self.host.turn()


def test_host_follows_again_after_journal_read_errors() -> None:
    """Reads fail while, for example, a full disk keeps the journal from storing its bundles."""
    errors = [Unavailable("no space left")] * 3

    def read(since: int) -> Iterator[Span]:
        if errors:
            raise errors.pop()
        yield span(0, 5)

    harness = HostHarness(read)
    for now in (0.0, 0.3, 0.6):
        harness.turn(now)
        assert harness.host.truncated is None
        assert harness.view.time == 0
        harness.feeds.turn(now)  # drops the feed that failed
        harness.follow(now)
        harness.feeds.turn(now)
    harness.turn(0.9)
    assert harness.view.time == 5


def test_trimmed_journal_stops_a_host_that_needs_older_records() -> None:
    def read(since: int) -> Iterator[Span]:
        raise RetentionExceeded("gone", 7)

    harness = HostHarness(read)
    harness.turn()
    assert harness.host.truncated is not None
    assert harness.host.truncated.oldest == 7
    assert "needs a checkpoint at record 7 or later" in harness.host.truncated.reason


class SlowView(RecordingView):
    """View that takes a millisecond per output."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        super().apply(time, items)
        self.clock_s += len(items) / 1000


def span(since: int, time: int) -> Span:
    """Return a span with one output per time."""
    return Span(since, time, [Item((each, 0), 0, "a") for each in range(since, time)])


def test_query_is_answered_while_a_large_span_is_applied() -> None:
    harness = HostHarness()
    harness.feeds.forward(span(0, 600))
    harness.deliver()
    answered_at = []
    for number in range(1, 20):
        harness.ask(number, {"what": "count"})
        before = harness.view.clock_s
        assert harness.turn() == (harness.view.time < 600)
        assert harness.view.clock_s - before <= 2 * APPLY_S + APPLY_ITEMS / 1000
        view_time, answered = (decode_answer(data) for _, data in harness.host.answers)
        harness.host.answers.clear()
        assert view_time == ViewTime(harness.view.time), "a client receives T before the answer"
        assert not isinstance(answered, ViewTime)
        _, answer = answered
        assert not isinstance(answer, ApiError)
        answered_at.append(answer["at"])
    assert len(set(answered_at)) == len(answered_at)
    while harness.turn():
        pass
    assert [item.label[0] for item in harness.view.items] == list(range(600))


class SlowQueryView(RecordingView):
    """View whose queries take the number of milliseconds that the question names."""

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        match question:
            case {"ms": int(ms)}:
                for _ in range(ms):
                    self.clock_s += 0.001
                    pause()
        return super().ask(question)


def test_long_query_runs_in_slices_between_other_queries() -> None:
    """Two clients always have another long question, and a third one asks short ones."""
    view = SlowQueryView()
    harness = HostHarness(view=view)
    host = harness.host
    numbers, sent_s, took_s = count(1), dict[int, float](), dict[str, list[float]]()
    client_of: dict[int, str] = {}

    def ask(client: str, ms: int) -> None:
        number = next(numbers)
        client_of[number], sent_s[number] = client, view.clock_s
        harness.ask(number, {"what": "count", "ms": ms}, client)

    def exchange() -> None:
        for _, data in host.answers:
            answer = decode_answer(data)
            if not isinstance(answer, ViewTime):
                client = client_of[answer[0]]
                took_s.setdefault(client, []).append(view.clock_s - sent_s[answer[0]])
                ask(client, 1 if client == "short" else 300)
        host.answers.clear()

    host.exchange = exchange
    ask("long", 300)
    ask("other", 300)
    ask("short", 1)
    while view.clock_s < 20:
        host.turn()
        exchange()
    assert median(took_s["short"]) <= 2 * SLICE_S
    assert max(took_s["short"]) <= 0.1, "a short query waited longer than 0.1 s"
    assert min(len(took_s["long"]), len(took_s["other"])) > 10


def test_checkpoint_starts_under_a_continuous_stream_of_spans() -> None:
    """The view applies no later span first, so it is not ahead of the durable time."""
    harness = HostHarness()
    time = 0
    while not harness.is_saving():
        for _ in range(3):
            harness.feeds.forward(span(time, time + 50))
            time += 50
        harness.feeds.set_durable_time(time)
        harness.feeds.forward(span(time, time + 50))  # in flight with the earlier messages
        time += 50
        harness.turn()
    assert harness.view.time == harness.host.subscription.durable_time
    assert 1_000 <= harness.view.time < 1_200


def test_lagging_view_still_takes_checkpoints() -> None:
    """It gets no durable times, but a feed that reads the journal sends only durable spans."""
    harness = HostHarness(lambda since: (span(time, time + 50) for time in range(0, 5_000, 50)))
    while not harness.is_saving():
        harness.turn()
    assert 1_000 <= harness.view.time < 1_000 + APPLY_ITEMS + 50


@pytest.mark.parametrize("is_shutdown", [False, True])
@pytest.mark.parametrize("outputs", [CHECKPOINT_ITEMS_MIN - 1, CHECKPOINT_ITEMS_MIN])
def test_checkpoint_starts_when_idle_or_at_shutdown(outputs: int, is_shutdown: bool) -> None:
    harness = HostHarness()
    harness.feeds.forward(span(0, outputs))
    while harness.turn():
        pass
    harness.feeds.set_durable_time(outputs)
    assert not harness.feeds.outbox  # the feeds send nothing, so no host wakes up
    harness.follow()
    harness.turn()
    assert not harness.is_saving()
    harness.host.is_ending = is_shutdown
    harness.turn(0.0 if is_shutdown else CALM_S)
    assert harness.is_saving() == (outputs == CHECKPOINT_ITEMS_MIN)
    assert harness.host.can_end == (outputs < CHECKPOINT_ITEMS_MIN)
    if harness.is_saving():
        harness.host.finish_job(True)
        assert harness.host.can_end


class CallRecordingView(RecordingView):
    """View that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def apply(self, time: int, items: Sequence[Item]) -> None:
        super().apply(time, items)
        self.calls.append("apply")

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Mapping[str, object]:
        self.calls.append("ask")
        return super().ask(question)

    def do_deferred_work(self) -> None:
        self.calls.append("deferred work")


def test_answers_pause_while_the_send_buffer_is_full() -> None:
    harness = HostHarness(view=CallRecordingView())
    has_room = [True]
    harness.host.has_room = lambda: has_room[0] and not harness.host.answers
    for number in (1, 2):
        harness.ask(number, {"what": "count"})
    harness.turn()
    assert len(harness.host.answers) == 1
    harness.host.answers.clear()
    has_room[0] = False
    while harness.turn():  # ends: the host does not busy-wait for room
        pass
    assert not harness.host.answers
    has_room[0] = True
    harness.turn()
    assert len(harness.host.answers) == 1


def test_deferred_work_runs_despite_constant_queries() -> None:
    view = CallRecordingView()
    harness = HostHarness(view=view)
    for number in range(1, 3 * (DEFERRALS_MAX + 1) + 1):
        harness.ask(number, {"what": "count"})
        harness.turn()
    assert view.calls == [*["ask"] * (DEFERRALS_MAX + 1), "deferred work"] * 3
