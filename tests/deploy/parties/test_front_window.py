"""A front bounds in bytes what is under way, and what it sends at once."""

from __future__ import annotations

from itertools import count

import pytest

from driftline.deploy.parties.front import BATCH_BYTES, Front
from driftline.deploy.parties.window import WINDOW_BYTES
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy
from driftline.engine.sources import ListSource, QueueSource
from driftline.engine.wire.messages import Frame, Header, Progress, Start, decode, encode

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
