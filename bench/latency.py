"""Latency, as in section VI of the paper: an open loop of Poisson arrivals, policy by policy.

Each row has a fresh cluster, the same documents and the same due times. A machine drifts within
minutes, so what all others are read against, the floor and the policy without any guarantee, runs
at the beginning and again at the end. Both runs' latencies are pooled, which is neither the luck
of the beginning nor of the end; every document counts twice there, so the mix is that of the other
rows (only `max_ms` is the maximum of twice as many).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.cases import Case, Progress, Setup, patience_s
from bench.floor import expected_records
from bench.meter import LatencyResult, Meter, open_loop, percentiles, poisson_schedule
from bench.microbatch import Refused
from bench.report import BASELINE, Latencies, LatencyRow


@dataclass(slots=True)
class Runs:
    """What was run; None is the floor."""

    meters: list[tuple[Case | None, Meter]] = field(default_factory=list)
    """In this order."""
    reasons: dict[Case | None, str] = field(default_factory=dict)
    """Why there is no run of a case."""


def runs_of(cases: Sequence[Case]) -> list[Case | None]:
    """The order of runs: what the others are compared with stands at both ends."""
    references = [None, *(case for case in cases if case.policy == BASELINE)]
    others = [case for case in cases if case.policy != BASELINE]
    return [*references, *others, *reversed(references)]


def measure_latency(
    setup: Setup, cases: Sequence[Case], rate: float, warmup: int, seed: int, progress: Progress
) -> Runs:
    """Run the floor and all cases."""
    expected = expected_records(setup.documents)
    schedule = poisson_schedule(len(setup.documents), rate, seed)
    runs = Runs()
    for case in runs_of(cases):
        progress.begin("floor" if case is None else case)
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
