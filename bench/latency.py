"""Latency, as in section VI of the paper: an open loop of Poisson arrivals, policy by policy.

Each run has a fresh cluster. A machine drifts within minutes, so the floor and all cases take
turns, several rounds of them, each round in the opposite order of the one before: what is compared
was measured at the same time, on average. Within a round all have the same documents and due times.
The latencies of a case's runs are pooled, as if they were of one run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from driftline.bench.cases import Case, Progress, Setup, patience_s
from driftline.bench.floor import expected_records
from driftline.bench.meter import LatencyResult, Meter, open_loop, percentiles, poisson_schedule
from driftline.bench.microbatch import Refused
from driftline.bench.report import Latencies, LatencyRow


@dataclass(slots=True)
class Runs:
    """What was run; None is the floor."""

    meters: list[tuple[Case | None, Meter]] = field(default_factory=list)
    """In this order."""
    reasons: dict[Case | None, str] = field(default_factory=dict)
    """Why there is no run of a case."""


def runs_of(cases: Sequence[Case], rounds: int) -> list[tuple[int, Case | None]]:
    """(round, case) in the order of runs."""
    order = [None, *cases]
    return [
        (number, case)
        for number in range(rounds)
        for case in (order if number % 2 == 0 else reversed(order))
    ]


def measure_latency(
    setup: Setup,
    cases: Sequence[Case],
    rate: float,
    warmup: int,
    seed: int,
    rounds: int,
    progress: Progress,
) -> Runs:
    """Run the floor and all cases, `rounds` times in turn."""
    expected = expected_records(setup.documents)
    runs = Runs()
    for number, case in runs_of(cases, rounds):
        progress.begin("floor" if case is None else case)
        if case in runs.reasons:
            progress.end("cannot be run")
            continue
        schedule = poisson_schedule(len(setup.documents), rate, seed + number)
        meter = Meter(expected, warmup)
        try:
            with setup.start(case) as system:
                result = open_loop(system, meter, schedule, patience_s=patience_s(case))
        except Refused as error:
            runs.reasons[case] = str(error)
            progress.end("cannot be run")
            continue
        runs.meters.append((case, meter))
        progress.end(
            f"p50 {result.latency['p50_ms']:.2f} ms, p99 {result.latency['p99_ms']:.2f} ms"
        )
    return runs


def latencies_of(setup: Setup, cases: Sequence[Case], rate: float, runs: Runs) -> Latencies:
    """What runs say of the floor and of all cases."""

    def result(case: Case | None) -> LatencyResult:
        return pooled([meter for of, meter in runs.meters if of == case])

    rows = [
        LatencyRow.of(case.policy, case.checkpoint_ms, result(case), runs.reasons.get(case))
        for case in cases
    ]
    return Latencies(rate, len(setup.documents), setup.nodes, result(None), rows)


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
