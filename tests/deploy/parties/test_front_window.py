"""A front bounds in bytes what is under way, and what it sends at once."""

from __future__ import annotations

from itertools import count

import pytest

from driftline.deploy.parties.front import BATCH_BYTES, Front
from driftline.deploy.parties.window import WINDOW_BYTES
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import policy
from driftline.engine.sources import CachedSource, ListSource, QueueSource
from driftline.engine.sources.cached import KEPT_BYTES
from driftline.engine.wire.messages import (
    AskSnapshot,
    Committed,
    Drain,
    Drained,
    Frame,
    Header,
    Message,
    Progress,
    Start,
    decode,
    encode,
)

SIZE = 1_000_000


class Sending:
    """A front with large records, by itself; `sent`: the bytes of its frames."""

    def __init__(self, records: int, live: bool, name: str) -> None:
        flow = Flow("large")
        flow.source("records").map(len).sink()
        payloads = [bytes(SIZE)] * records
        source = QueueSource() if live else ListSource(payloads)
        if isinstance(source, QueueSource):
            for payload in payloads:
                source.put(payload)
        ids = count(1)
        self.front = Front(0, 2, plan(flow), policy(name), source, lambda: next(ids))
        self.front.receive(encode(Header("master", 0, 0), Start(1, 0, ())))
        self.sent: list[int] = []
        self.told = 0

    def tell(self, message: Message) -> None:
        self.told += 1
        self.front.receive(encode(Header("master", 1, self.told), message))

    def go(self) -> None:
        """Let it send as much as it may."""
        more = True
        while more:
            more = self.front.turn()
            messages = [(len(data), decode(data)[1]) for _, data in self.front.outbox]
            self.sent += [size for size, message in messages if isinstance(message, Frame)]
            self.front.outbox.clear()


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("name", ["exactly-once", "two-phase", "none"])
def test_large_records_are_under_way_up_to_a_number_of_bytes(live: bool, name: str) -> None:
    sending = Sending(80, live, name)
    sending.go()
    assert WINDOW_BYTES <= sum(sending.sent) < WINDOW_BYTES + 2 * SIZE
    assert max(sending.sent) < BATCH_BYTES + 2 * SIZE
    first = len(sending.sent)
    sending.front.receive(encode(Header("master", 1, 1), Progress(11, 11)))
    sending.go()
    assert 9 * SIZE < sum(sending.sent[first:]) < 12 * SIZE


def test_a_record_larger_than_the_window_is_sent() -> None:
    sending = Sending(2, False, "exactly-once")
    sending.front.window.bytes_max = SIZE // 2
    sending.go()
    assert len(sending.sent) == 1
    sending.front.receive(encode(Header("master", 1, 1), Progress(2, 2)))
    sending.go()
    assert len(sending.sent) == 2


def asks(front: Front) -> bool:
    """Whether the front, with its regular messages, asks for a snapshot."""
    front.outbox.clear()
    front.repeat()
    return any(isinstance(decode(data)[1], AskSnapshot) for _, data in front.outbox)


def deliver(sending: Sending, until: int) -> int:
    """All is delivered, record by record, up to a time. Returns the most bytes that were kept."""
    assert isinstance(sending.front.source, CachedSource)
    most = 0
    for time in range(2, until + 1):
        sending.tell(Progress(time, time))
        sending.go()
        most = max(most, sending.front.source.bytes)
    return most


def test_a_front_that_keeps_many_records_asks_for_a_snapshot_before_it_is_due() -> None:
    sending = Sending(120, False, "exactly-once")
    sending.go()
    assert not asks(sending.front), "fewer are under way"
    assert deliver(sending, 90) < 1.1 * KEPT_BYTES, "also if there is no snapshot"
    assert asks(sending.front)
    sending.tell(Committed(1, 0, 90, 90))
    assert not asks(sending.front)


def test_without_replays_a_front_keeps_no_records() -> None:
    sending = Sending(120, False, "none")
    assert deliver(sending, 90) < 2 * SIZE
    assert not asks(sending.front)
    assert sending.front.taken == 120
    sending.front.receive(encode(Header("master", 2, 0), Start(2, -1, ())))
    sending.go()
    assert sending.front.taken == 120


@pytest.mark.parametrize("name", ["exactly-once", "at-least-once"])
def test_a_live_front_sends_no_more_than_a_run_that_ends_beside_a_file_needs(name: str) -> None:
    talk = Sending(100, live=True, name=name)
    talk.go()
    sent = talk.front.taken
    assert sent < 100, "the window is full"
    talk.front.drain()
    talk.tell(Drain(1))
    talk.tell(Progress(INFINITY, INFINITY))
    talk.go()
    assert talk.front.taken == sent
    talk.tell(Drain(talk.front.next + 3))
    talk.go()
    assert talk.front.taken == sent + 3


def test_a_stream_that_is_over_says_its_end_though_there_is_no_room_to_read_it() -> None:
    """Other fronts have to pass that time before there is room."""
    talk = Sending(100, live=True, name="exactly-once")
    assert isinstance(talk.front.source, QueueSource)
    talk.front.source.close()
    talk.go()
    assert talk.front.taken < 100, "the window is full"
    talk.front.drain()
    said = [decode(data)[1] for _, data in talk.front.outbox]
    assert Drained(time=101, live=1, ended=0) in said
