"""The latencies of all runs of a case are told as those of one."""

from driftline.bench.experiments.latency import pooled
from driftline.bench.measuring.meter import Meter


def test_pooled_runs_are_one_run() -> None:
    meters = [Meter([1, 1]), Meter([1, 1])]
    for meter, seconds in zip(meters, (0.001, 0.003), strict=True):
        for number in range(2):
            meter.handed_over(number, now=0.0, due=0.0)
        meter.arrived(0, ["a"], now=seconds)
    result = pooled(meters)
    assert (result.documents, result.lost, result.duplicated) == (2, 2, 0)
    assert (result.latency["p50_ms"], result.latency["max_ms"]) == (1.0, 3.0)
