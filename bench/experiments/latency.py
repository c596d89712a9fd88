"""Latency, as in section VI of the paper: an open loop of Poisson arrivals, policy by policy.

Each run has a new cluster. Each round has the opposite order of the one before, so all cases are
measured at the same time on average; all runs of a round have the same documents and due times. A
figure of a case is the median of its runs; `max` is the largest of all.
"""

from collections.abc import Sequence

from rich.console import Console

from driftline.bench.experiments.rounds import Rounds, Turn, back_and_forth, run_rounds
from driftline.bench.measuring.corpus import expected_outputs
from driftline.bench.measuring.loops import System, open_loop, poisson_schedule
from driftline.bench.measuring.meter import LatencyResult, Meter
from driftline.bench.report.rows import LatencyRow, enough_for_p99
from driftline.bench.report.tables import Latencies
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
    """Run all cases, `rounds` times in turn."""
    expected = expected_outputs(setup.documents)

    def measure(system: System, turn: Turn) -> tuple[Meter, str]:
        number, case = turn
        schedule = poisson_schedule(len(setup.documents), rate, seed + number)
        meter = Meter(expected, warmup)
        result = open_loop(system, meter, schedule, patience_s=patience_s(case))
        return meter, told_of(result, rounds)

    return run_rounds(setup, back_and_forth(cases, rounds), measure, console)


def told_of(run: LatencyResult, rounds: int) -> str:
    """What the line of a run says: a 99th percentile if the row of all rounds will have one."""
    if not run.documents:
        return "no document is complete"
    shown = ["p50", *(["p99"] if enough_for_p99(rounds * run.documents) else []), "max"]
    return ", ".join(f"{name} {run.latency[f'{name}_ms']:.2f} ms" for name in shown)


def latencies_of(
    setup: Setup, cases: Sequence[Case], rate: float, rounds: Rounds[Meter], sync_ms: float = 0.0
) -> Latencies:
    """The latencies of all cases; `sync_ms`: what a durable write takes."""
    rows = [
        LatencyRow(
            case,
            [meter.latency_result() for meter in rounds.of(case)],
            rounds.reasons.get(case),
        )
        for case in cases
    ]
    return Latencies(rate, len(setup.documents), setup.nodes, rows, sync_ms)
