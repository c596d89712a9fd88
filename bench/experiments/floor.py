"""The floor alone: one run for its latency, one for its throughput."""

from driftline.bench.experiments.throughput import UNDER_WAY_FLOOR
from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.loops import closed_loop, open_loop, poisson_schedule
from driftline.bench.measuring.meter import LatencyResult, Meter, ThroughputResult
from driftline.bench.systems.floor import Floor


def run_floor_latency(
    documents: Documents, rate: float, warmup: int, workers: int = 2, seed: int = 0
) -> LatencyResult:
    """Open loop: Poisson arrivals at `rate` documents a second."""
    meter = Meter(expected_outputs(documents), warmup)
    with Floor(documents, workers) as floor:
        return open_loop(floor, meter, poisson_schedule(len(documents), rate, seed))


def run_floor_throughput(
    documents: Documents, workers: int = 2, window: int = UNDER_WAY_FLOOR
) -> ThroughputResult:
    """Closed loop: as fast as possible with at most `window` documents under way."""
    meter = Meter(expected_outputs(documents))
    with Floor(documents, workers) as floor:
        return closed_loop(floor, meter, window)
