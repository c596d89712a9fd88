"""Latency, as in section VI of the paper: an open loop of Poisson arrivals, policy by policy.

Each row has a fresh cluster, the same documents and the same due times. A machine drifts within
minutes, so what all others are read against, the floor and the policy without any guarantee, runs
at the beginning and again at the end. Both runs' latencies are pooled, which is neither the luck
of the beginning nor of the end; every document counts twice there, so the mix is that of the other
rows (only `max_ms` is the maximum of twice as many).
"""

from collections.abc import Sequence

from bench.cases import Case, Progress, Setup
from bench.floor import expected_records
from bench.meter import LatencyResult, Meter, open_loop, percentiles, poisson_schedule
from bench.report import Latencies, LatencyRow


def runs_of(cases: Sequence[Case]) -> list[Case | None]:
    """The order of runs: what the others are compared with stands at both ends."""
    references = [None, *(case for case in cases if case.is_reference)]
    others = [case for case in cases if not case.is_reference]
    return [*references, *others, *reversed(references)]


def measure_latency(
    setup: Setup, cases: Sequence[Case], rate: float, warmup: int, seed: int, progress: Progress
) -> Latencies:
    """Run the floor and all cases."""
    expected = expected_records(setup.documents)
    schedule = poisson_schedule(len(setup.documents), rate, seed)
    meters: dict[Case | None, list[Meter]] = {}
    for case in runs_of(cases):
        progress.begin("floor" if case is None else case)
        meter = Meter(expected, warmup)
        with setup.start(case) as system:
            result = open_loop(system, meter, schedule)
        meters.setdefault(case, []).append(meter)
        progress.end(
            f"p50 {result.latency['p50_ms']:.2f} ms, p99 {result.latency['p99_ms']:.2f} ms"
        )
    return Latencies(
        rate,
        len(setup.documents),
        setup.nodes,
        pooled(meters[None]),
        [LatencyRow.of(case.policy, case.checkpoint_ms, pooled(meters[case])) for case in cases],
    )


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
