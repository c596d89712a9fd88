"""The latencies of a case are those of each of its runs."""

from driftline.bench.experiments.latency import latencies_of
from driftline.bench.experiments.rounds import Rounds
from driftline.bench.measuring.meter import Meter
from driftline.bench.systems.cases import FLOOR, Case
from driftline.bench.systems.setup import Setup


def test_runs_are_not_pooled() -> None:
    floor = Case(FLOOR, None)
    meters = [Meter([1, 1]) for _ in range(3)]
    for meter, seconds in zip(meters, (0.001, 0.009, 0.003), strict=True):
        for number in range(2):
            meter.handed_over(number, now=0.0, due=0.0)
        meter.arrived(0, ["a"], now=seconds)
    setup = Setup([("a", "x"), ("b", "x")], 2, "speculative")
    latencies = latencies_of(setup, [floor], 50, Rounds([(floor, meter) for meter in meters]))
    (row,) = latencies.rows
    assert (row.documents, row.lost, row.duplicated) == (3, 3, 0)
    assert row.compared == [1.0, 9.0, 3.0]
    assert row.figure("p50_ms").median == 3.0
