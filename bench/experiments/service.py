"""The index as a service: freshness, durability, queries and throughput of a `driftline serve`.

The documents of the load are put in by one bulk; then documents and queries arrive as two Poisson
processes, over HTTP, from this process. See `bench.measuring.load` for what is measured.
"""

from __future__ import annotations

from time import perf_counter

from rich.console import Console

from driftline.bench.measuring.load import Load, Observed
from driftline.bench.measuring.meter import percentiles
from driftline.bench.measuring.served import drive, fill
from driftline.bench.systems.service import ServedIndex
from driftline.engine.counted import counted

SUMMED = ("postings", "postings_bytes", "documents", "segments", "segment_bytes", "tail_versions")
"""Figures of shards that are added up."""


def measure_service(load: Load, nodes: int, searchers: int, console: Console) -> Observed:
    """Start a service, and observe it under the load."""
    observed = Observed()
    samples: list[tuple[float, dict[str, float]]] = []
    with ServedIndex(nodes, searchers) as service:
        if load.documents:
            observed.fill_per_s = fill(service.url, load.documents)
            per_s = f"{observed.fill_per_s:,.0f} a second"
            console.print(f"{counted(len(load.documents), 'document')}, {per_s}", highlight=False)
        drive(
            service.url, load, observed, lambda: samples.append((perf_counter(), service.cpu_s()))
        )
        observed.memory_mib = service.memory_mib()
        observed.figures = summed(service.figures())
    (began, before), (ended, after) = samples
    observed.cores = {
        name: (seconds - before.get(name, 0.0)) / (ended - began) for name, seconds in after.items()
    }
    console.print(told_of(observed), highlight=False)
    return observed


def summed(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """The figures of all shards together."""
    found = dict.fromkeys((*SUMMED, "postings_bytes_without_positions"), 0.0)
    for part in figures.values():
        if "postings" in part:
            for name in SUMMED:
                found[name] += part[name]
            without = part["bytes_per_posting_without_positions"] * part["postings"]
            found["postings_bytes_without_positions"] += without
    return found


def told_of(observed: Observed) -> str:
    """What a line says of a system."""
    if observed.skipped:
        return observed.skipped
    fresh = percentiles(observed.freshness)
    told = f"fresh p50 {fresh['p50_ms']:.2f} ms, p99 {fresh['p99_ms']:.2f} ms"
    return f"{told}, {counted(observed.errors.total(), 'error')}"
