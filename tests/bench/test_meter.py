"""The meter counts what is lost and what comes twice, and tells latencies."""

import math

import pytest

from driftline.bench.measuring.meter import RunMeter, Sent, percentiles


def sent(meter: RunMeter) -> RunMeter:
    for number in range(len(meter.expected)):
        meter.record_sent(number, now=float(number), due=number - 0.25)
    return meter


def test_latency_runs_from_the_due_time_to_the_last_output() -> None:
    meter = sent(RunMeter([2, 1]))
    meter.record_arrival(0, ["a"], 0.5)
    meter.record_arrival(1, ["a"], 1.125)
    meter.record_arrival(0, ["b"], 2.0)
    assert meter.latencies_ms() == [2250.0, 375.0]
    assert meter.lateness_ms() == [250.0, 250.0]
    assert (meter.complete, meter.lost, meter.duplicated) == (2, 0, 0)
    meter.validate()


def test_the_warm_up_is_left_out_of_latencies_but_not_of_counts() -> None:
    meter = sent(RunMeter([1, 1], warmup=1))
    meter.record_arrival(1, ["a"], 1.5)
    assert meter.latencies_ms() == [750.0]
    assert len(meter.lateness_ms()) == 1
    assert meter.lost == 1


def test_meter_reports_latency_loss_and_duplicates_per_document() -> None:
    meter = sent(RunMeter([2, 2, 0], warmup=1))
    meter.record_arrival(0, ["a", "b"], 0.5)
    meter.record_arrival(0, ["a"], 0.75)
    meter.record_arrival(1, ["a"], 1.5)
    assert list(meter.documents()) == [
        Sent(0, 0.0, 250.0, 750.0, lost=0, duplicated=1, warmup=True),
        Sent(1, 1.0, 250.0, None, lost=1, duplicated=0, warmup=False),
        Sent(2, 2.0, 250.0, None, lost=0, duplicated=0, warmup=False),
    ]


def test_a_lost_record_is_counted_and_its_document_has_no_latency() -> None:
    meter = sent(RunMeter([3, 1]))
    meter.record_arrival(0, ["a", "b"], 1.0)
    meter.validate()
    assert (meter.lost, meter.under_way, meter.complete) == (2, 2, 0)
    assert meter.latencies_ms() == []


@pytest.mark.parametrize(
    "batches",
    [[["a", "b"], ["a"]], [["a"], ["a"], ["b"]], [["a", "a", "b"]], [["b"], ["a", "b"]]],
)
def test_an_output_that_comes_again_is_counted_before_and_after_completion(
    batches: list[list[str]],
) -> None:
    meter = sent(RunMeter([2]))
    for batch in batches:
        meter.record_arrival(0, batch, 1.0)
    assert (meter.outputs, meter.lost, meter.duplicated) == (2, 0, 1)
    meter.validate()


def test_a_duplicate_does_not_stand_in_for_a_lost_output() -> None:
    meter = sent(RunMeter([2]))
    meter.record_arrival(0, ["a"], 1.0)
    meter.record_arrival(0, ["a"], 1.0)
    assert (meter.complete, meter.lost, meter.duplicated) == (0, 1, 1)


def test_a_document_without_words_is_complete_at_once() -> None:
    meter = sent(RunMeter([0]))
    assert (meter.complete, meter.under_way, meter.latencies_ms()) == (1, 0, [])


def test_outputs_of_a_document_that_was_not_sent_are_an_error() -> None:
    with pytest.raises(AssertionError, match="document 0, which was not sent"):
        RunMeter([1]).record_arrival(0, ["a"], 1.0)


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
