"""Source of producer records, one property at a time."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from driftline.connectors.logs.inputlog import WriteGroup
from driftline.connectors.logs.received import READ_BATCH, Receipt
from driftline.engine.errors import StateMismatch
from driftline.engine.event_time import END, IDLE_MARK, RESUMED_MARK, EventTime, time_mark
from driftline.engine.labels import INFINITY
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import unpack
from tests.connectors.logs.received_front import (
    MicrosecondClock,
    ReceivingFront,
    available_records,
    memory_disk,
)


@pytest.fixture
def clock() -> MicrosecondClock:
    return MicrosecondClock()


@pytest.fixture
def front(clock: MicrosecondClock) -> Iterator[ReceivingFront]:
    with memory_disk() as directory:
        yield ReceivingFront(directory / "log", clock)


def test_record_can_be_read_before_it_is_stored(front: ReceivingFront) -> None:
    records = front.source.read(1)
    assert next(records) is None
    assert front.source.receive("p", 1, "a") is Receipt.ACCEPTED
    assert next(records) == (1000, "a")
    assert front.source.durable <= 1000
    assert front.source.last_acknowledged("p") == 0
    assert front.commit() == ["p"]
    assert front.source.durable == 1001
    assert front.source.last_acknowledged("p") == 1


def test_idle_front_promises_without_writing(
    front: ReceivingFront, clock: MicrosecondClock
) -> None:
    """After a restart with a slower clock, the front still keeps its promise."""
    front.commit()
    source = front.source
    assert source.durable == 1, "the clock has reached this time, but no promise was requested"
    assert source.advance_to(5000) == 5000
    assert source.durable == 5000
    assert source.next_group() is None
    clock.now = 0
    again = front.restarted(clock)
    again.source.receive("p", 1, "a")
    ((time, _),) = available_records(again.source.read(5000))
    assert time >= 5000


def test_source_with_event_times_logs_its_idle_times_ticks_and_end(clock: MicrosecondClock) -> None:
    with memory_disk() as directory:
        front = ReceivingFront(
            directory / "log", clock, EventTime("s", 0, idle_after=300, tick=1000)
        )
        source = front.source
        assert source.add_marks() == 1000, "a source without records does not become idle"
        clock.now = 1100
        source.receive("p", 1, "a")
        assert source.add_marks() == 300
        clock.now = 1400
        assert source.add_marks() == 600
        clock.now = 2005
        assert source.add_marks() == 1000
        front.commit()
        front = front.restarted(clock)
        source = front.source
        clock.now = 2100
        source.receive("p", 2, "b")
        source.end_producer("p")
        front.commit()
        records = available_records(source.read(1))
        assert [payload for _, payload in records] == [
            *(RESUMED_MARK, "a", IDLE_MARK, time_mark(2005), RESUMED_MARK, "b", END)
        ]
        assert (source.records, source.producers, front.log.count(1)) == (2, 1, 2)
        assert [type(record) for record in source.read(1)] == [tuple] * 7, "the source has ended"


def test_unread_ticks_do_not_accumulate(clock: MicrosecondClock) -> None:
    """Otherwise they would fill the window of a slow run, and producers would wait forever."""
    with memory_disk() as directory:
        source = ReceivingFront(directory / "log", clock, EventTime("s", 0, tick=1000)).source
        reader = source.read(1)
        for now in range(2000, 12000, 1000):
            clock.now = now
            assert source.add_marks() == 1000
            assert source.waiting_records == 1
        assert next(reader) == (2000, time_mark(2000))
        assert source.add_marks() == 1000
        assert source.waiting_records == 2
        assert next(reader) == (11000, time_mark(11000))


def test_replay_has_the_same_times_from_log_and_memory(front: ReceivingFront) -> None:
    count = 2 * READ_BATCH + 10
    for number in range(1, count + 1):
        front.source.receive("p", number, [number, "x"])
    first = front.source.read(1)
    before = available_records(first)
    front.commit()
    assert front.source.waiting_records == front.source.waiting_bytes == 0
    front.source.receive("p", count + 1, "last")
    second = front.source.read(1)
    replayed = available_records(second)
    assert [time for time, _ in replayed[:-1]] == [time for time, _ in before]
    assert replayed[-1][1] == "last"
    assert list(first) == [], "a new reader ends the previous one"
    assert available_records(front.restarted(MicrosecondClock()).source.read(1)) == replayed[:-1]


def test_closed_source_stays_closed(front: ReceivingFront) -> None:
    source = front.source
    source.receive("p", 1, "a")
    source.close()
    assert source.receive("p", 2, "b") is Receipt.CLOSED
    assert source.receive("p", 1, "a") is Receipt.REPEATED
    assert list(source.read(1)) == [(1000, "a")]
    assert source.durable < INFINITY
    front.commit()
    assert source.durable == INFINITY
    again = front.restarted(MicrosecondClock()).source
    assert again.ended
    assert again.next_group() is None
    assert again.receive("p", 2, "b") is Receipt.CLOSED
    assert list(again.read(1)) == [(1000, "a")]


def test_trimming_keeps_unstored_records_and_hides_trimmed_ones(front: ReceivingFront) -> None:
    for number in range(1, 4):
        front.source.receive("p", number, number)
    front.source.trim(INFINITY)
    available_records(front.source.read(1))
    front.commit()
    assert [entry.sequence for entry in front.log.read(0)] == [1, 2, 3]
    front.source.trim(1002)
    front.commit()
    assert [entry.sequence for entry in front.log.read(0)] == [3]
    assert available_records(front.source.read(1002)) == [(1002, 3)]
    with pytest.raises(StateMismatch, match="only those from record 1002 on"):
        front.source.read(1001)
    with pytest.raises(StateMismatch, match="only those from record 1002 on"):
        front.restarted(MicrosecondClock()).source.read(1)


PRODUCER_PREFIXES = ("p", "q")


class CrashingSourceMachine(RuleBasedStateMachine):
    """A source with crashes at any moment, and what producers and outputs rely on."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.clock = MicrosecondClock()
        self.front = ReceivingFront(self.stack.enter_context(memory_disk()) / "log", self.clock)
        self.group: WriteGroup | None = None
        self.acknowledged = dict.fromkeys(PRODUCER_PREFIXES, 0)
        self.times: dict[tuple[str, int], int] = {}
        """The times of durable records; they never change."""
        self.ended: set[str] = set()
        self.promised = 0
        """The largest `durable` so far: everything below it is final."""
        self.trimmed = 0
        self.records = self.front.source.entries(1)
        self.position = 1

    def teardown(self) -> None:
        self.front.log.close()
        self.stack.close()

    @initialize()
    def first_group(self) -> None:
        self.front.commit()

    @rule(producer=st.sampled_from(PRODUCER_PREFIXES), ahead=st.integers(-3, 2))
    def receive(self, producer: str, ahead: int) -> None:
        source = self.front.source
        accepted = source.last_accepted(producer)
        number = max(1, accepted + ahead)
        receipt = source.receive(producer, number, [producer, number])
        if number <= accepted:
            assert receipt is Receipt.REPEATED
        elif source.has_ended(producer):
            assert receipt is Receipt.CLOSED
        else:
            assert receipt is (Receipt.ACCEPTED if number == accepted + 1 else Receipt.OUT_OF_ORDER)

    @rule(micros=st.integers(-500, 2_000_000))
    def let_time_pass(self, micros: int) -> None:
        self.clock.now = max(0, self.clock.now + micros)

    @rule(ahead=st.integers(-10, 3_000_000))
    def move(self, ahead: int) -> None:
        promise = self.front.source.advance_to(max(0, self.clock.now + ahead))
        assert promise >= self.position
        self.position = max(self.position, promise)

    @rule(count=st.integers(1, 5))
    def read(self, count: int) -> None:
        for _ in range(count):
            record = next(self.records, None)
            if record is None:
                return
            assert not isinstance(record, BadRecord)
            assert record[0] >= self.position, "times increase, and promises are kept"
            self.position = record[0] + 1

    @precondition(lambda self: self.group is None)
    @rule()
    def begin_group(self) -> None:
        self.group = self.front.source.next_group()

    @precondition(lambda self: self.group is not None)
    @rule(crash=st.booleans())
    def end_group(self, crash: bool) -> None:
        """Finish a write; a crash may follow before producers are acknowledged."""
        assert self.group is not None
        self.front.log.write(self.group)
        if crash:
            self.restart()
            return
        for producer in self.front.source.mark_written(self.group):
            number = self.front.source.last_acknowledged(producer)
            assert number > self.acknowledged[producer]
            self.acknowledged[producer] = number
        self.group = None

    @rule()
    def restart(self) -> None:
        self.front = self.front.restarted(self.clock)
        self.group = None
        self.replay()

    @rule()
    def replay(self) -> None:
        """Replay from the last snapshot, which covers only durable records."""
        self.position = max(1, self.trimmed)
        self.records = self.front.source.entries(self.position)

    @rule(share=st.floats(0, 1))
    def commit_snapshot(self, share: float) -> None:
        below = min(self.promised, self.position)
        self.trimmed = max(self.trimmed, int(below * share))
        self.front.source.trim(self.trimmed)

    @precondition(lambda self: len(self.times) > 8)
    @rule()
    def close(self) -> None:
        self.front.source.close()

    @precondition(lambda self: len(self.times) > 4)
    @rule(producer=st.sampled_from(PRODUCER_PREFIXES))
    def end_producer(self, producer: str) -> None:
        source = self.front.source
        if source.last_accepted(producer):
            source.end_producer(producer)
            others = [name for name in PRODUCER_PREFIXES if source.last_accepted(name)]
            assert source.closed or not all(map(source.has_ended, others))

    @invariant()
    def durable_end_is_permanent(self) -> None:
        source = self.front.source
        self.ended |= {name for name in PRODUCER_PREFIXES if source.has_durably_ended(name)}
        assert all(map(source.has_durably_ended, self.ended))

    @invariant()
    def no_record_is_lost_duplicated_or_moved(self) -> None:
        source = self.front.source
        source.validate()
        stored = self.front.log.read(0)
        numbers = {(entry.producer, entry.sequence) for entry in stored}
        assert len(numbers) == len(stored), "no record is stored twice"
        for entry in stored:
            key = entry.producer, entry.sequence
            assert unpack(entry.data) == key
            if key not in self.times:
                assert entry.time >= self.promised, (
                    "no new record has a time below the durable records"
                )
            assert self.times.setdefault(key, entry.time) == entry.time, "times never change"
        for producer, number in self.acknowledged.items():
            assert source.last_acknowledged(producer) >= number
            for key in ((producer, earlier) for earlier in range(1, number + 1)):
                assert key in numbers or self.times[key] < self.trimmed, "no record is lost"

    @invariant()
    def unstored_records_are_not_durable(self) -> None:
        source = self.front.source
        stored = {entry.time for entry in self.front.log.read(0)}
        in_flight = self.group.entries if self.group is not None else ()
        for time in [entry.time for entry in (*in_flight, *source._incoming)]:
            assert time in stored or time >= max(source.durable, self.promised)
        self.promised = max(self.promised, source.durable)


CrashingSourceMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestTwins = CrashingSourceMachine.TestCase
