"""Front: labels, replays, the in-flight window, and limits on what it sends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.front import BATCH_BYTES, TRIM_EVERY_S, Front
from driftline.deploy.roles.intake import (
    ACK_REPEAT_S,
    MAGIC,
    Intake,
    IntakeKind,
    IntakeReply,
    decode_answer,
)
from driftline.deploy.roles.window import WINDOW, WINDOW_BYTES, WINDOW_MAX, InFlightWindow
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import get_policy
from driftline.engine.sources import BadRecord, CachedSource, ListSource, QueueSource
from driftline.engine.sources.cached import CACHE_BYTES
from driftline.engine.sources.fingerprint import StoreFingerprint, VerifiedSource
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import (
    AskSnapshot,
    Committed,
    Failed,
    Frame,
    Message,
    MessageHeader,
    Progress,
    Promise,
    Start,
    Stop,
    decode,
    encode,
)
from driftline.simulation.world.disks import LogDisk

FLOW = Flow("front")
FLOW.source("in").sink()


class StartedFront:
    """A started front and its master."""

    def __init__(self, records: list[object], mode: str, *, keeps_bad: bool) -> None:
        self.aside: list[BadRecord] = []
        self.front = Front(
            0, 1, make_plan(FLOW), get_policy(mode), VerifiedSource(ListSource(records)), lambda: 1,
            on_bad=self.set_aside if keeps_bad else None,
        )  # fmt: skip
        self.number = 0
        self.front.receive(encode(MessageHeader("master", 1, 0), Start(1, 1, ())))

    def set_aside(self, records: Sequence[BadRecord]) -> None:
        self.aside += records

    def receive_from_master(self, message: Message) -> None:
        self.number += 1
        self.front.receive(encode(MessageHeader("master", 1, self.number), message))

    def sent_messages(self) -> list[Message]:
        while self.front.turn():
            pass
        outbox, self.front.outbox = self.front.outbox, []
        return [decode(data)[1] for _, data in outbox]


def bad(time: int, *, ends: bool = False) -> BadRecord:
    return BadRecord(time, "a file", "torn", "{", ends_input=ends)


def covered_times(sent_messages: list[Message]) -> list[int]:
    """Return the times that the front's promises and frames cover, without the end of the input."""
    times = [message.until for message in sent_messages if isinstance(message, Promise)]
    times += [message.interval[1] for message in sent_messages if isinstance(message, Frame)]
    return [time for time in times if time < INFINITY]


@pytest.mark.parametrize("input_is_broken", [False, True])
@pytest.mark.parametrize("mode", ["exactly-once", "two-phase"])
def test_run_fails_at_a_fatal_record_once_all_before_it_is_delivered(
    mode: str, input_is_broken: bool
) -> None:
    """A bad record is fatal if it is not set aside, or if the input is broken from there on."""
    started = StartedFront(
        ["a", "b", bad(3, ends=input_is_broken), "d"], mode, keeps_bad=input_is_broken
    )
    sent_messages = started.sent_messages()
    assert max(covered_times(sent_messages)) == 3
    assert not [
        message for message in sent_messages if isinstance(message, Promise) and message.until > 3
    ]
    for delivered, errors in ((2, []), (3, ["a file, record 3: torn"]), (3, [])):
        started.receive_from_master(Progress(delivered, delivered))
        assert [each.text for each in started.sent_messages() if isinstance(each, Failed)] == errors
    assert started.aside == []


@pytest.mark.parametrize("last", ["good", "bad"])
def test_bad_record_is_covered_with_the_next_good_one(last: str) -> None:
    records = ["a", bad(2), *(["c"] if last == "good" else [])]
    started = StartedFront(records, "exactly-once", keeps_bad=True)
    sent_messages = started.sent_messages()
    assert [record.time for record in started.aside] == [2]
    assert max(covered_times(sent_messages)) == (4 if last == "good" else 2)
    ends = [message for message in sent_messages if isinstance(message, Promise)]
    assert ends[-1].until == INFINITY


def test_committed_snapshot_stores_the_input_fingerprint() -> None:
    started = StartedFront(["a", "b", "c"], "exactly-once", keeps_bad=False)
    started.sent_messages()
    started.receive_from_master(Committed(1, 0, 0, 3))
    (job,) = started.front.jobs
    assert isinstance(job, StoreFingerprint)
    VerifiedSource(ListSource(["a", "b", "x", "y"]), job.fingerprint).check()
    assert (job.fingerprint.until, job.fingerprint.last) == (3, 2)
    again = StartedFront(["a"], "none", keeps_bad=False)
    again.sent_messages()
    again.receive_from_master(Committed(1, 0, 0, 2))
    assert again.front.jobs == [], "without replay, each call reads all records"


SIZE = 1_000_000


class FrontWithLargeRecords:
    """A front with large records, without other roles; `sent`: sizes of its frames in bytes."""

    def __init__(self, records: int, live: bool, name: str) -> None:
        flow = Flow("large")
        flow.source("records").map(len).sink()
        payloads = [bytes(SIZE)] * records
        source = QueueSource() if live else ListSource(payloads)
        if isinstance(source, QueueSource):
            for payload in payloads:
                source.put(payload)
        ids = count(1)
        self.front = Front(0, 2, make_plan(flow), get_policy(name), source, lambda: next(ids))
        self.front.receive(encode(MessageHeader("master", 0, 0), Start(1, 0, ())))
        self.sent: list[int] = []
        self.last_sequence = 0

    def receive_from_master(self, message: Message) -> None:
        self.last_sequence += 1
        self.front.receive(encode(MessageHeader("master", 1, self.last_sequence), message))

    def send_all(self) -> None:
        """Let the front send as much as its window allows."""
        more = True
        while more:
            more = self.front.turn()
            messages = [(len(data), decode(data)[1]) for _, data in self.front.outbox]
            self.sent += [size for size, message in messages if isinstance(message, Frame)]
            self.front.outbox.clear()


def test_automatic_window_has_more_records_in_flight_if_they_cost_less_time() -> None:
    window, time = InFlightWindow(), 0

    def in_flight_after(seconds_of_a_record: float) -> int:
        """Fill and empty the window ten times. Return how many records then fit into it."""
        nonlocal time
        now = 0.0
        for _ in range(10):
            while not window.full:
                time += 1
                window.add(time, 1, now)
            now += window.in_flight * seconds_of_a_record
            window.release(time + 1, now)
        return window.records

    assert [in_flight_after(cost) for cost in (1e-6, 1e-3, 1e-4, 1e-5)] == [
        WINDOW_MAX, WINDOW, 2 * WINDOW, WINDOW_MAX
    ]  # fmt: skip
    assert InFlightWindow(5).records == 5


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("name", ["exactly-once", "two-phase", "none"])
def test_window_limits_large_records_by_bytes(live: bool, name: str) -> None:
    sending = FrontWithLargeRecords(80, live, name)
    sending.send_all()
    assert WINDOW_BYTES <= sum(sending.sent) < WINDOW_BYTES + 2 * SIZE
    assert max(sending.sent) < BATCH_BYTES + 2 * SIZE
    first = len(sending.sent)
    sending.front.receive(encode(MessageHeader("master", 1, 1), Progress(11, 11)))
    sending.send_all()
    assert 9 * SIZE < sum(sending.sent[first:]) < 12 * SIZE


def requests_snapshot(front: Front) -> bool:
    """Return whether the front's periodic messages request a snapshot."""
    front.outbox.clear()
    front.repeat()
    return any(isinstance(decode(data)[1], AskSnapshot) for _, data in front.outbox)


def deliver(sending: FrontWithLargeRecords, until: int) -> int:
    """Deliver all records up to a time, one by one; return the largest number of cached bytes."""
    assert isinstance(sending.front.source, CachedSource)
    most = 0
    for time in range(2, until + 1):
        sending.receive_from_master(Progress(time, time))
        sending.send_all()
        most = max(most, sending.front.source.bytes)
    return most


def test_front_with_many_kept_records_requests_an_early_snapshot() -> None:
    sending = FrontWithLargeRecords(120, False, "exactly-once")
    sending.send_all()
    assert not requests_snapshot(sending.front), "fewer are in flight"
    assert deliver(sending, 90) < 1.1 * CACHE_BYTES, "the cache is bounded even without a snapshot"
    assert requests_snapshot(sending.front)
    sending.receive_from_master(Committed(1, 0, 90, 90))
    assert not requests_snapshot(sending.front)


RECORDS = 9


class LiveFront:
    """A front of a live source with records 1 to `RECORDS`, its master, and a clock."""

    def __init__(self, mode: str, source: QueueSource | None = None) -> None:
        self.source = QueueSource() if source is None else source
        if source is None:
            for number in range(1, RECORDS + 1):
                self.source.put(number)
        flow = Flow("live")
        flow.source("in").sink()
        self.front = Front(
            0, 1, make_plan(flow), get_policy(mode), self.source, lambda: 1, run="now"
        )
        self._last_sequence = 0

    def receive_from_master(self, message: Message, *, at: float = 0.0) -> list[Message]:
        """Give the front a message of its master at a time, and return its answers."""
        self.front.now = at
        self._last_sequence += not message.control
        sequence = 0 if message.control else self._last_sequence
        self.front.receive(encode(MessageHeader("master", 1, sequence), message))
        while self.front.turn():
            pass
        outbox, self.front.outbox = self.front.outbox, []
        return [decode(data)[1] for _, data in outbox]

    def start(self) -> list[Message]:
        return self.receive_from_master(Start(1, -1 if self.front.policy.name == "none" else 1, ()))


def test_delivered_records_are_trimmed_periodically() -> None:
    feeding = LiveFront("none")
    feeding.start()
    feeding.receive_from_master(Progress(9, 3), at=10.0)
    assert feeding.source.trimmed == 3, "processed records are not trimmed"
    feeding.receive_from_master(Progress(9, 5), at=10.0 + TRIM_EVERY_S / 2)
    assert feeding.source.trimmed == 3, "not every record causes a write to the log"
    feeding.receive_from_master(Progress(9, 5), at=10.0 + TRIM_EVERY_S)
    assert feeding.source.trimmed == 5


@pytest.mark.parametrize(("error", "trimmed"), [("", RECORDS + 1), ("FunctionFailed", 0)])
@pytest.mark.parametrize("ended", [False, True])
def test_successful_end_trims_all_sent_records(error: str, trimmed: int, ended: bool) -> None:
    feeding = LiveFront("none")
    if ended:
        feeding.source.close()
    feeding.start()
    feeding.receive_from_master(Stop("another", "", ""))
    assert feeding.source.trimmed == 0
    feeding.receive_from_master(Stop("now", error, ""))
    assert feeding.source.trimmed == trimmed


def test_restarted_front_resumes_after_trimmed_records() -> None:
    feeding = LiveFront("none")
    feeding.start()
    feeding.receive_from_master(Progress(9, 7), at=10.0)
    again = LiveFront("none", feeding.source)
    sent_messages = again.start()
    assert not [message for message in sent_messages if isinstance(message, Failed)]
    (frame,) = [message for message in sent_messages if isinstance(message, Frame)]
    assert frame.time == 7
    assert again.front.sent_records == RECORDS - 6


INTAKE_WINDOW = 2


class IntakeWithClock:
    """An intake over a log in memory, with a virtual clock."""

    def __init__(self) -> None:
        self.log = LogDisk("log")
        self.source = ReceivedSource(self.log, lambda: 1_000_000_000)
        self.intake = Intake(self.source, window=INTAKE_WINDOW)
        self.reader = self.source.entries(1)
        self.pass_time(0.0)

    def receive_from_producer(self, kind: IntakeKind, producer: str, *rest: object) -> None:
        message = pack((MAGIC, kind, producer, 7, *rest))
        self.intake.take([producer.encode(), message])
        self.intake.turn()

    def store(self) -> None:
        while self.intake.jobs:
            job = self.intake.jobs.pop(0)
            self.intake.on_job_done(job, self.log.execute_job(job))
            self.intake.turn()

    def pass_time(self, seconds: float) -> None:
        self.intake.now += seconds
        self.intake.tick(self.intake.now)

    def answers(self) -> list[tuple[bytes, IntakeReply]]:
        found = [
            (route, decode_answer(data)._replace(below=0)) for route, data in self.intake.answers
        ]
        self.intake.answers.clear()
        return found


def test_full_window_sends_keep_alives_to_all_producers() -> None:
    bench = IntakeWithClock()
    bench.receive_from_producer(IntakeKind.HELLO, "q")
    for number in range(1, INTAKE_WINDOW + 1):
        bench.receive_from_producer(IntakeKind.RECORD, "p", number, number)
        bench.store()
    bench.answers()
    assert not bench.intake.has_room()
    for _ in range(3):
        bench.pass_time(ACK_REPEAT_S)
        assert bench.answers() == [
            (b"p", IntakeReply(IntakeKind.ACK, 7, INTAKE_WINDOW)),
            (b"q", IntakeReply(IntakeKind.ACK, 7, 0)),
        ]
        bench.pass_time(ACK_REPEAT_S / 2)
        assert not bench.answers(), "keep-alives are sent only as often as needed"
    while next(bench.reader) is not None:
        pass
    bench.pass_time(ACK_REPEAT_S)
    assert not bench.answers(), "no producer waits any more"
