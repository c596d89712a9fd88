"""Figures of inputs count the records of one call once, and report the progress of the input."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from driftline.connectors.files import open_source
from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import PipedSource, ReceivedSource
from driftline.deploy.local.inputs.input_progress import InputFigures, InputProgress
from driftline.deploy.roles.front import Front
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import get_policy as policy_of
from driftline.engine.sources import BadRecord, RetainedSource, Source
from driftline.engine.wire.messages import MessageHeader, Progress, Start, encode

FLOW = Flow("tally")
FLOW.source("in").sink()


class InputOfOneCall:
    """One call of a command: a front, its source and its input progress."""

    def __init__(
        self,
        source: Source | RetainedSource,
        start: int,
    ) -> None:
        self.aside: list[BadRecord] = []
        ids = count(1)
        self.front = Front(
            0, 1, make_plan(FLOW), policy_of("exactly-once"), source, lambda: next(ids),
            on_bad=self.aside.extend,
        )  # fmt: skip
        self.tally = InputProgress(self.front, source, start)
        self.sent = 0

    def begin(self, offset: int, incarnation: int = 1) -> None:
        """Begin an incarnation and read all available records."""
        self.front.receive(
            encode(MessageHeader("master", incarnation, 0), Start(incarnation, offset, ()))
        )
        self.sent = 0
        self.turn()

    def turn(self) -> None:
        while self.front.turn():
            pass

    def deliver(self, until: int) -> None:
        self.sent += 1
        header = MessageHeader("master", self.front.incarnation, self.sent)
        self.front.receive(encode(header, Progress(until, until)))
        self.turn()

    def figures(self, now: float = 0.0) -> InputFigures:
        return self.tally.read_figures(now)


def test_records_of_a_file_count_once(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    lines = ['{"id": 1}\n', "no record\n", '{"id": 3}\n', '{"id": 4}\n', '{"id": 5}\n']
    file.write_text("".join(lines))
    first = InputOfOneCall(open_source(file), 1)
    assert first.figures().records == 0
    first.begin(1)
    assert first.figures().records == 4
    first.begin(3, incarnation=2)
    assert first.figures().records == 4, "records 3, 4 and 5 were read again"
    second = InputOfOneCall(open_source(file), 4)
    assert second.figures().records == 0
    second.begin(4)
    figures = second.figures()
    assert figures.records == 2
    size = file.stat().st_size
    assert (figures.position, figures.size, figures.percent) == (30, size, 60.0), "3 of 5"
    second.deliver(INFINITY)
    figures = second.figures()
    assert (figures.position, figures.size, figures.percent) == (size, size, 100.0)
    assert str(figures) == "in.jsonl 100 % delivered"


class SettableClock:
    us = 10**15

    def __call__(self) -> int:
        return self.us


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


def write(source: ReceivedSource, log: InputLog) -> None:
    while (group := source.next_group()) is not None:
        log.write(group)
        source.mark_written(group)


def test_lag_of_producer_records_starts_when_they_are_accepted(
    tmp_path: Path, clock: SettableClock
) -> None:
    log = InputLog(tmp_path / "log", "flow")
    source = ReceivedSource(log, clock, name="orders")
    call = InputOfOneCall(source, 1)
    times = []
    for number in range(1, 6):
        clock.us += 1_000_000
        times.append(clock.us)
        source.receive("p", number, number)
    write(source, log)
    clock.us += 2_000_000
    figures = call.figures()
    assert (figures.records, figures.waiting, figures.lag_s) == (0, 5, 6.0)
    assert str(figures) == "orders 5 waiting"
    call.begin(1)
    figures = call.figures()
    assert (figures.records, figures.waiting, figures.lag_s) == (5, 0, 6.0)
    call.deliver(times[3])
    assert call.figures().lag_s == 3.0, "the fourth record is the oldest undelivered one"
    call.deliver(times[4] + 1)
    assert (call.figures().waiting, call.figures().lag_s) == (0, 0.0)
    log.close()

    log = InputLog(tmp_path / "log", "flow")
    source = ReceivedSource(log, clock, name="orders")
    second = InputOfOneCall(source, times[2])
    assert (second.figures().records, second.figures().waiting) == (0, 3)
    assert second.figures().lag_s == 4.0, "the delivery of the third record is not known yet"
    source.receive("q", 1, "more")
    second.begin(times[2])
    write(source, log)
    assert (second.figures().records, second.figures().waiting) == (4, 0)
    second.deliver(source.durable)
    second.begin(times[2], incarnation=2)
    assert (second.figures().records, second.figures().waiting, second.figures().lag_s) == (
        4,
        0,
        0.0,
    )
    log.close()


def test_lag_of_standard_input_starts_when_records_are_read(tmp_path: Path) -> None:
    seconds = [1000.0]
    log = InputLog(tmp_path / "log", "flow")
    source = PipedSource(log, wall_clock_us=lambda: int(seconds[0] * 1e6))
    call = InputOfOneCall(source, 1)
    for number in range(1, 4001):
        source.take({"n": number})
    write(source, log)
    for delivered in (1, 200, 500):
        seconds[0] += 10
        call.front.now = seconds[0]
        call.begin(1) if delivered == 1 else call.deliver(delivered)
        figures = call.figures(seconds[0])
        assert figures.lag_s == seconds[0] - 1000, "all records were read at the same time"
        assert figures.fields()["lag_s"] == seconds[0] - 1000
    call.begin(1, incarnation=2)
    seconds[0] += 5
    call.front.now = seconds[0]
    call.turn()
    assert call.figures(seconds[0]).lag_s == seconds[0] - 1000, "the same holds in a replay"
    log.close()
