"""The loops keep their schedule and their window, whatever the system does."""

from time import perf_counter, sleep

import pytest

from driftline.bench.measuring.loops import closed_loop, cpu_seconds, open_loop, poisson_schedule
from driftline.bench.measuring.meter import Arrival, RunMeter
from tests.bench.echo import Echo


def test_the_open_loop_keeps_its_schedule_although_the_system_is_late() -> None:
    system = Echo([["a"]] * 20, delay_s=0.05)
    result = open_loop(system, RunMeter([1] * 20), [i / 1000 for i in range(20)], settle_s=0.0)
    assert system.sent == list(range(20))
    assert system.under_way_max > 10, "a closed loop would have waited"
    assert result["latencies"] == 20
    assert result["p50_ms"] >= 50
    assert result["late_p99_ms"] < 45, "less than the system takes"
    assert (result["lost"], result["duplicated"]) == (0, 0)


class Stalling(Echo):
    """A system that holds its producer up for half a second, after three documents."""

    stalled = False

    def receive(self) -> list[Arrival]:
        if len(self.sent) == 3 and not self.stalled:
            self.stalled = True
            sleep(0.5)
        return super().receive()


def test_latency_includes_the_wait_while_the_producer_stalled() -> None:
    system = Stalling([["a"]] * 23)
    result = open_loop(system, RunMeter([1] * 23), [i / 100 for i in range(23)], settle_s=0.0)
    assert result["latencies"] == 23
    assert result["max_ms"] >= 450
    assert result["p50_ms"] >= 300, "most documents were due while it stood still"
    assert result["late_max_ms"] >= 450


def test_open_loop_times_out_on_missing_outputs() -> None:
    system = Echo([["a"], [], ["a", "a"]])
    result = open_loop(system, RunMeter([1] * 3), [0.0] * 3, patience_s=0.05, settle_s=0.01)
    assert (result["latencies"], result["lost"], result["duplicated"]) == (2, 1, 1)


def test_the_closed_loop_keeps_its_window() -> None:
    system = Echo([["a", "b"]] * 50, delay_s=0.001)
    result = closed_loop(system, RunMeter([2] * 50), window=7, settle_s=0.0)
    assert system.under_way_max == 7
    assert 0 < result["documents_per_s"] <= 7 / 0.001
    assert result["outputs_per_s"] == pytest.approx(2 * result["documents_per_s"])
    assert (result["lost"], result["duplicated"]) == (0, 0)


def test_closed_loop_times_out_on_missing_outputs() -> None:
    system = Echo([["a"], [], ["a"]])
    result = closed_loop(system, RunMeter([1] * 3), window=3, patience_s=0.05, settle_s=0.0)
    assert (result["lost"], result["duplicated"]) == (1, 0)


def test_a_schedule_is_the_same_for_a_seed_and_has_the_rate() -> None:
    schedule = poisson_schedule(4000, rate=50, seed=3)
    assert schedule == poisson_schedule(4000, rate=50, seed=3) == sorted(schedule)
    assert schedule != poisson_schedule(4000, rate=50, seed=4)
    assert schedule[-1] == pytest.approx(80, rel=0.1)


def test_cpu_seconds_grow_with_work() -> None:
    before = cpu_seconds()
    end = perf_counter() + 0.1
    while perf_counter() < end:
        pass
    assert cpu_seconds() > before
