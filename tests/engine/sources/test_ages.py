"""For how long records have been there: by a clock that is never set, and over calls by the log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from driftline.engine.sources.logs.ages import MARKS_MAX, Ages
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.piped import PipedSource
from driftline.engine.sources.logs.received import ReceivedSource

HOUR_S = 3600.0


@dataclass
class Clocks:
    """The time of day, which may be set, and a clock that only goes on; in seconds."""

    day: float = 1e9
    steady: float = 500.0

    def pass_s(self, seconds: float) -> None:
        self.day += seconds
        self.steady += seconds

    def now_us(self) -> int:
        return int(self.day * 1e6)

    def steady_s(self) -> float:
        return self.steady

    def next_call(self) -> None:
        """A steady clock begins anywhere when a machine is started again."""
        self.steady = 3.0

    def ages(self, *, by_time: bool = True) -> Ages:
        return Ages(self.now_us, self.steady_s, by_time=by_time)


def write(source: ReceivedSource, log: InputLog) -> None:
    while (group := source.group()) is not None:
        log.write(group)
        source.written(group)


def piped(log: InputLog, clocks: Clocks) -> PipedSource:
    return PipedSource(log, ages=clocks.ages(by_time=False))


def received(log: InputLog, clocks: Clocks) -> ReceivedSource:
    return ReceivedSource(log, clocks.now_us, ages=clocks.ages())


def test_numbers_have_ages_in_the_call_that_takes_them_and_in_later_ones(tmp_path: Path) -> None:
    clocks, log = Clocks(), InputLog(tmp_path / "log", "flow")
    source = piped(log, clocks)
    for number in range(1, 4):
        source.take({"n": number})
        clocks.pass_s(10)
    write(source, log)
    assert [source.age_s(time) for time in (1, 2, 3)] == [30, 20, 10]
    assert source.waiting_s(2) == 20
    log.close()
    clocks.next_call()
    log = InputLog(tmp_path / "log", "flow")
    source = piped(log, clocks)
    clocks.pass_s(5)
    for number in range(1, 5):
        source.take({"n": number})
    clocks.pass_s(1)
    assert [source.age_s(time) for time in (1, 2, 3, 4)] == [36, 26, 16, 1]
    log.close()


@pytest.mark.parametrize("set_by_s", [-HOUR_S, HOUR_S])
def test_a_clock_that_is_set_changes_no_age_of_this_call(tmp_path: Path, set_by_s: float) -> None:
    clocks, log = Clocks(), InputLog(tmp_path / "log", "flow")
    source = received(log, clocks)
    source.receive("p", 1, "before")
    first = source.group()
    assert first is not None
    clocks.pass_s(20)
    clocks.day += set_by_s
    source.receive("p", 2, "after")
    log.write(first)
    source.written(first)
    write(source, log)
    clocks.pass_s(5)
    one, two = log.read(1)
    assert (source.age_s(one.time), source.age_s(two.time)) == (25, 5)
    log.close()


def test_a_later_call_knows_when_records_were_taken_whose_times_do_not_say_it(
    tmp_path: Path,
) -> None:
    clocks, log = Clocks(), InputLog(tmp_path / "log", "flow")
    source = received(log, clocks)
    source.receive("p", 1, "before")
    clocks.day -= HOUR_S
    source.receive("p", 2, "its time is an hour ahead")
    write(source, log)
    two = log.read(1)[1]
    log.close()
    clocks.pass_s(7)
    clocks.next_call()
    log = InputLog(tmp_path / "log", "flow")
    source = received(log, clocks)
    assert source.age_s(two.time) == pytest.approx(7)
    clocks.day -= HOUR_S
    clocks.pass_s(2)
    assert source.age_s(two.time) == pytest.approx(2), "since this call has begun, at least"
    log.close()


def test_marks_are_bounded_and_an_age_is_never_too_small() -> None:
    clocks = Clocks()
    ages = clocks.ages(by_time=False)
    taken = []
    for number in range(1, 4 * MARKS_MAX):
        clocks.pass_s(1)
        taken.append(clocks.steady)
        ages.take(number)
        assert ages.marks <= MARKS_MAX
    for number in range(1, 4 * MARKS_MAX, 97):
        age, true = ages.of(number), clocks.steady - taken[number - 1]
        assert age is not None
        assert true <= age <= true + 16, "a thousandth of all of them"
    ages.forget(4 * MARKS_MAX - 1000)
    assert ages.marks < 1001
    ages.take(4 * MARKS_MAX)
    clocks.pass_s(1)
    ages.take(4 * MARKS_MAX + 1)
    assert ages.of(4 * MARKS_MAX + 1) == 0, "there is room for fine marks again"
