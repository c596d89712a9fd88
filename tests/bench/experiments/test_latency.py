"""The latencies of a case are those of each of its runs."""

from driftline.bench.experiments.latency import latencies_of, told_of
from driftline.bench.experiments.rounds import Rounds
from driftline.bench.measuring.meter import LatencyResult, Meter, percentiles
from driftline.bench.report.rows import ENOUGH_FOR_P99, LatencyRow
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


def test_the_line_of_a_run_has_a_99th_percentile_if_its_row_will_have_one() -> None:
    def line(latencies: int, rounds: int) -> tuple[str, bool]:
        values = [1.0] * latencies
        run = LatencyResult(latencies, percentiles(values), percentiles(values), 0, 0)
        row = LatencyRow(Case(FLOOR, None), [run] * rounds)
        return told_of(run, rounds), row.figure("p99_ms").median == 1.0

    assert line(300, 1) == ("p50 1.00 ms, max 1.00 ms", False)
    assert line(ENOUGH_FOR_P99 // 3, 3) == ("p50 1.00 ms, p99 1.00 ms, max 1.00 ms", True)
    assert line(0, 3) == ("no document is complete", False)
