"""The meter counts what is lost and what comes twice, and its loops keep time."""

import math
from collections import deque
from time import perf_counter

import pytest

from driftline.bench.meter import (
    Arrival,
    Meter,
    Sent,
    closed_loop,
    cpu_seconds,
    open_loop,
    percentiles,
    poisson_schedule,
)


class Echo:
    """A system whose answer to document i is ready `delay_s` after it was handed over."""

    def __init__(self, answers: list[list[str]], delay_s: float = 0.0) -> None:
        self.answers = answers
        self.delay_s = delay_s
        self.waiting: deque[tuple[float, Arrival]] = deque()
        self.under_way_max = 0
        self.sent: list[int] = []

    def send(self, number: int) -> None:
        self.sent.append(number)
        if self.answers[number]:
            ready = perf_counter() + self.delay_s
            self.waiting.append((ready, (number, self.answers[number], ready)))
        self.under_way_max = max(self.under_way_max, len(self.waiting))

    def receive(self) -> list[Arrival]:
        if self.waiting and self.waiting[0][0] <= perf_counter():
            return [self.waiting.popleft()[1]]
        return []

    def wait(self, timeout_ms: int) -> None:
        pass


def sent(meter: Meter) -> Meter:
    for number in range(len(meter.expected)):
        meter.handed_over(number, now=float(number), due=number - 0.25)
    return meter


def test_latency_runs_from_the_hand_over_to_the_last_record() -> None:
    meter = sent(Meter([2, 1]))
    meter.arrived(0, ["a"], 0.5)
    meter.arrived(1, ["a"], 1.125)
    meter.arrived(0, ["b"], 2.0)
    assert meter.latencies_ms() == [2000.0, 125.0]
    assert meter.lateness_ms() == [250.0, 250.0]
    assert (meter.complete, meter.lost, meter.duplicated) == (2, 0, 0)
    meter.validate()


def test_the_warm_up_is_left_out_of_latencies_but_not_of_counts() -> None:
    meter = sent(Meter([1, 1], warmup=1))
    meter.arrived(1, ["a"], 1.5)
    assert meter.latencies_ms() == [500.0]
    assert len(meter.lateness_ms()) == 1
    assert meter.lost == 1


def test_what_became_of_every_document_is_told() -> None:
    meter = sent(Meter([2, 2, 0], warmup=1))
    meter.arrived(0, ["a", "b"], 0.5)
    meter.arrived(0, ["a"], 0.75)
    meter.arrived(1, ["a"], 1.5)
    assert list(meter.documents()) == [
        Sent(0, 0.0, 500.0, lost=0, duplicated=1, warmup=True),
        Sent(1, 1.0, None, lost=1, duplicated=0, warmup=False),
        Sent(2, 2.0, None, lost=0, duplicated=0, warmup=False),
    ]


def test_a_lost_record_is_counted_and_its_document_has_no_latency() -> None:
    meter = sent(Meter([3, 1]))
    meter.arrived(0, ["a", "b"], 1.0)
    meter.validate()
    assert (meter.lost, meter.under_way, meter.complete) == (2, 2, 0)
    assert meter.latencies_ms() == []


@pytest.mark.parametrize(
    "batches",
    [[["a", "b"], ["a"]], [["a"], ["a"], ["b"]], [["a", "a", "b"]], [["b"], ["a", "b"]]],
)
def test_a_record_that_comes_again_is_counted_before_and_after_completion(
    batches: list[list[str]],
) -> None:
    meter = sent(Meter([2]))
    for batch in batches:
        meter.arrived(0, batch, 1.0)
    assert (meter.records, meter.lost, meter.duplicated) == (2, 0, 1)
    meter.validate()


def test_a_duplicate_does_not_stand_in_for_a_lost_record() -> None:
    meter = sent(Meter([2]))
    meter.arrived(0, ["a"], 1.0)
    meter.arrived(0, ["a"], 1.0)
    assert (meter.complete, meter.lost, meter.duplicated) == (0, 1, 1)


def test_a_document_without_words_is_complete_at_once() -> None:
    meter = sent(Meter([0]))
    assert (meter.complete, meter.under_way, meter.latencies_ms()) == (1, 0, [])


def test_records_of_a_document_that_was_not_sent_are_an_error() -> None:
    with pytest.raises(AssertionError, match="document 0, which was not sent"):
        Meter([1]).arrived(0, ["a"], 1.0)


def test_the_open_loop_keeps_its_schedule_although_the_system_is_late() -> None:
    system = Echo([["a"]] * 20, delay_s=0.05)
    result = open_loop(system, Meter([1] * 20), [i / 1000 for i in range(20)], settle_s=0.0)
    assert system.sent == list(range(20))
    assert system.under_way_max > 10, "a closed loop would have waited"
    assert result.documents == 20
    assert result.latency["p50_ms"] >= 50
    assert result.lateness["p50_ms"] < 5
    assert (result.lost, result.duplicated) == (0, 0)


def test_the_open_loop_gives_up_on_what_does_not_come() -> None:
    system = Echo([["a"], [], ["a", "a"]])
    result = open_loop(system, Meter([1] * 3), [0.0] * 3, patience_s=0.05, settle_s=0.01)
    assert (result.documents, result.lost, result.duplicated) == (2, 1, 1)


def test_the_closed_loop_keeps_its_window() -> None:
    system = Echo([["a", "b"]] * 50, delay_s=0.001)
    result = closed_loop(system, Meter([2] * 50), window=7, settle_s=0.0)
    assert system.under_way_max == 7
    assert 0 < result.documents_per_s <= 7 / 0.001
    assert result.records_per_s == pytest.approx(2 * result.documents_per_s)
    assert (result.lost, result.duplicated) == (0, 0)


def test_the_closed_loop_gives_up_on_what_does_not_come() -> None:
    system = Echo([["a"], [], ["a"]])
    result = closed_loop(system, Meter([1] * 3), window=3, patience_s=0.05, settle_s=0.0)
    assert (result.lost, result.duplicated) == (1, 0)


def test_a_schedule_is_the_same_for_a_seed_and_has_the_rate() -> None:
    schedule = poisson_schedule(4000, rate=50, seed=3)
    assert schedule == poisson_schedule(4000, rate=50, seed=3) == sorted(schedule)
    assert schedule != poisson_schedule(4000, rate=50, seed=4)
    assert schedule[-1] == pytest.approx(80, rel=0.1)


def test_percentiles_are_observed_values() -> None:
    assert percentiles([float(i) for i in range(100, 0, -1)]) == {
        "p50_ms": 50.0,
        "p75_ms": 75.0,
        "p95_ms": 95.0,
        "p99_ms": 99.0,
        "max_ms": 100.0,
    }
    assert set(percentiles([7.0]).values()) == {7.0}
    assert all(math.isnan(value) for value in percentiles([]).values())


def test_cpu_seconds_grow_with_work() -> None:
    before = cpu_seconds()
    end = perf_counter() + 0.1
    while perf_counter() < end:
        pass
    assert cpu_seconds() > before
