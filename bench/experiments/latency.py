"""Latency, as in section VI of the paper: an open loop of Poisson arrivals, policy by policy.

Each run has a new cluster. Each round has the opposite order of the one before, so all cases are
measured at the same time on average; all runs of a round have the same documents and due times. The
latencies of a case's runs are pooled, as if they were of one run.
"""

from collections.abc import Sequence

from rich.console import Console

from driftline.bench.experiments.rounds import Rounds, Turn, back_and_forth, run_rounds
from driftline.bench.measuring.corpus import expected_records
from driftline.bench.measuring.loops import System, open_loop, poisson_schedule
from driftline.bench.measuring.meter import LatencyResult, Meter, percentiles
from driftline.bench.report.tables import Latencies, LatencyRow
from driftline.bench.systems.cases import Case
from driftline.bench.systems.setup import Setup, patience_s


def measure_latency(
    setup: Setup,
    cases: Sequence[Case],
    rate: float,
    warmup: int,
    seed: int,
    rounds: int,
    console: Console,
) -> Rounds[Meter]:
    """Run the floor and all cases, `rounds` times in turn."""
    expected = expected_records(setup.documents)

    def measure(system: System, turn: Turn) -> tuple[Meter, str]:
        number, case = turn
        schedule = poisson_schedule(len(setup.documents), rate, seed + number)
        meter = Meter(expected, warmup)
        figures = open_loop(system, meter, schedule, patience_s=patience_s(case)).latency
        return meter, f"p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms"

    return run_rounds(setup, back_and_forth(cases, rounds), measure, console)


def latencies_of(
    setup: Setup, cases: Sequence[Case], rate: float, rounds: Rounds[Meter]
) -> Latencies:
    """The pooled latencies of the floor and of all cases."""
    rows = [
        LatencyRow.of(
            case.policy, case.checkpoint_ms, pooled(rounds.of(case)), rounds.reasons.get(case)
        )
        for case in cases
    ]
    return Latencies(rate, len(setup.documents), setup.nodes, pooled(rounds.of(None)), rows)


def pooled(meters: Sequence[Meter]) -> LatencyResult:
    """The statistics of several runs as if they were one."""
    latencies = [ms for meter in meters for ms in meter.latencies_ms()]
    return LatencyResult(
        documents=len(latencies),
        latency=percentiles(latencies),
        lateness=percentiles([ms for meter in meters for ms in meter.lateness_ms()]),
        lost=sum(meter.lost for meter in meters),
        duplicated=sum(meter.duplicated for meter in meters),
    )
