"""Service experiment: freshness, durability, queries and throughput of `driftline serve`.

One bulk inserts the initial documents. Then documents and queries arrive as two Poisson processes,
over HTTP, from this process. `bench.measuring.load` defines the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from time import perf_counter

from msgspec import Struct, field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from driftline.bench.experiments.pictures import (
    Bar,
    draw_bars,
    draw_over_percentiles,
    mark_percentiles,
)
from driftline.bench.experiments.report import (
    P99_LATENCIES_MIN,
    Spread,
    three_digits,
    to_json_number,
)
from driftline.bench.measuring.load import KINDS, Load, LoadParameters, Measurements
from driftline.bench.measuring.loops import measure_sync_ms
from driftline.bench.measuring.meter import percentiles
from driftline.bench.measuring.served import drive, fill
from driftline.bench.systems.peers import PEERS, measure_peer
from driftline.bench.systems.service import ServedIndex
from driftline.engine.texts import counted
from driftline.engine.ui.consoles import format_error_count, new_table
from driftline.engine.ui.pictures import (
    COLOURS,
    new_figure,
    plain_log_scale,
    save,
    style_curves,
)

DRIFTLINE = "driftline"

SUMMED_FIGURES = (
    "postings",
    "postings_bytes",
    "documents",
    "segments",
    "segment_bytes",
    "tail_versions",
)
"""Names of figures that are summed over the shards."""

BEHIND_MAX_S = 1.0
"""If a peer ends more than this many seconds after the load, a note says that it fell behind."""

SEND_DELAY_MAX_MS = 5.0
"""If the p99 of the send delay is above this, the report notes that the machine is busy."""

NOTE = (
    "Latencies in ms, all from the time at which a request is due. Fresh: until the answer to a "
    "query that finds the document by a word of its own; durable: until the write is acknowledged. "
    "documents/s: insertion of the initial documents, until all of them can be found."
)


class Services(Struct, frozen=True):
    """Measurements of a service, and of each peer (another search engine) under the same load."""

    parameters: LoadParameters
    nodes: int
    searchers: int
    ours: Measurements
    peers: Mapping[str, Measurements] = field(default_factory=dict)
    sync_ms: float = nan
    """Median time to append 4 KiB to a file on this machine and sync it."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        return {
            **_measurements_as_json(self.ours),
            "peers": {name: _measurements_as_json(each) for name, each in self.peers.items()},
            "documents": self.parameters.documents,
            "rate": self.parameters.documents_per_s,
            "searches": self.parameters.queries_per_s,
            "seconds": self.parameters.seconds,
            "nodes": self.nodes,
            "searchers": self.searchers,
            "sync_ms": to_json_number(self.sync_ms),
        }

    def tables(self) -> list[Table]:
        """Return the figures for a terminal: freshness, queries, and the processes."""
        queries = [self._queries()] if self.parameters.queries_per_s else []
        return [self._freshness(), *queries, self._processes()]

    def problems(self) -> list[str]:
        """Return a sentence for each kind of error of the service; peers' errors do not count."""
        return [f"{what}: {count} times" for what, count in sorted(self.ours.errors.items())]

    @property
    def measured_systems(self) -> dict[str, Measurements]:
        """The measurements of each system that was not skipped, Driftline first."""
        systems = {DRIFTLINE: self.ours, **self.peers}
        return {name: each for name, each in systems.items() if not each.skipped}

    def _freshness(self) -> Table:
        parameters = self.parameters
        table = new_table(
            f"{parameters.documents_per_s:g} documents and {parameters.queries_per_s:g} queries a "
            f"second, over {parameters.documents:,} documents, {parameters.seconds:g} s",
            ["system"],
            ["documents/s", "fresh p50", "p99", "durable p50", "p99", "send delay p99", "errors"],
        )
        for name, each in self.measured_systems.items():
            fresh, durable = percentiles(each.freshness_ms), percentiles(each.acknowledged_ms)
            send_delay_ms = percentiles(each.send_delay_ms)["p99_ms"]
            latencies = [fresh["p50_ms"], fresh["p99_ms"], durable["p50_ms"], durable["p99_ms"]]
            cells = map(_format_ms, [*latencies, send_delay_ms])
            errors = format_error_count(each.errors.total())
            table.add_row(name, f"{each.fill_per_s:,.0f}", *cells, errors)
        table.caption = Text("\n".join(self._notes()))
        return table

    def _notes(self) -> list[str]:
        """Return notes that define the figures, and warn of unreliable ones."""
        notes = [NOTE, f"To append 4 KiB and wait for the disk takes {self.sync_ms:.2f} ms here."]
        if (
            self.parameters.documents_per_s
            and (count := len(self.ours.freshness_ms)) < P99_LATENCIES_MIN
        ):
            notes.append(
                f"A p99 is steady from {P99_LATENCIES_MIN:,} latencies on; here are {count:,}: "
                "give more --seconds."
            )
        if (delay_ms := percentiles(self.ours.send_delay_ms)["p99_ms"]) > SEND_DELAY_MAX_MS:
            notes.append(
                f"The requests were sent late by {delay_ms:.1f} ms (p99): the machine has other "
                "work, which makes the latencies larger."
            )
        for name, each in self.peers.items():
            if each.skipped:
                notes.append(f"{name}: {each.skipped}")
                continue
            commit = [each.figures.get(f"commit_{p}_ms", nan) for p in ("p50", "p99")]
            behind = each.figures.get("behind_s", 0.0)
            notes.append(
                f"{name}: a commit alone takes {commit[0]:.1f} ms (p50), {commit[1]:.1f} ms (p99)"
                + (
                    f"; it was {behind:.1f} s behind at the end, so its latencies grow with "
                    "--seconds"
                    if behind > BEHIND_MAX_S
                    else ""
                )
            )
        return notes

    def _queries(self) -> Table:
        table = new_table(
            "Queries: p50, p99 in ms", ["form", "queries"], list(self.measured_systems)
        )
        for kind in KINDS:
            if kind in self.ours.queries:
                figures = [
                    percentiles(each.queries.get(kind, ()))
                    for each in self.measured_systems.values()
                ]
                table.add_row(
                    kind,
                    f"{len(self.ours.queries[kind]):,}",
                    *(f"{_format_ms(f['p50_ms'])}, {_format_ms(f['p99_ms'])}" for f in figures),
                )
        return table

    def _processes(self) -> Table:
        table = new_table("Processes", ["process"], ["cores busy", "memory, MiB"])
        for system, each in self.measured_systems.items():
            for name, mib in each.memory_mib.items():
                process = f"{system}: {name}" if name != system else name
                table.add_row(process, f"{each.cores.get(name, nan):.2f}", f"{mib:.0f}")
        figures = self.ours.figures
        per_posting = bytes_per_posting(figures)
        if per_posting is not None:
            plain = figures["postings_bytes_without_positions"] / figures["postings"]
            table.caption = Text(
                f"{per_posting:.2f} bytes a posting in segments, {plain:.2f} without positions"
            )
        return table


def measure_services(
    parameters: LoadParameters,
    load: Load,
    nodes: int,
    searchers: int,
    compare: bool,
    console: Console,
) -> Services:
    """Run the load on a service; if `compare`, then on each of its peers in turn."""
    sync = measure_sync_ms()
    ours = measure_service(load, nodes, searchers, console)
    peers = {}
    for name in PEERS if compare else ():
        peers[name] = measure_peer(name, load)
        console.print(f"{name}: {line_of(peers[name])}", highlight=False, markup=False)
    return Services(parameters, nodes, searchers, ours, peers, sync)


def measure_service(load: Load, nodes: int, searchers: int, console: Console) -> Measurements:
    """Start a service and measure it under the load."""
    observed = Measurements()
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
        observed.figures = sum_shards(service.figures())
    (start, start_cpu_s), (end, end_cpu_s) = samples
    observed.cores = {
        name: (cpu_s - start_cpu_s.get(name, 0.0)) / (end - start)
        for name, cpu_s in end_cpu_s.items()
    }
    console.print(line_of(observed), highlight=False)
    return observed


def sum_shards(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return `SUMMED_FIGURES`, and the postings' size without positions, summed over the shards."""
    sums = dict.fromkeys((*SUMMED_FIGURES, "postings_bytes_without_positions"), 0.0)
    for part in figures.values():
        if "postings" in part:
            for name in SUMMED_FIGURES:
                sums[name] += part[name]
            plain_bytes = part["bytes_per_posting_without_positions"] * part["postings"]
            sums["postings_bytes_without_positions"] += plain_bytes
    return sums


def bytes_per_posting(figures: Mapping[str, float]) -> float | None:
    """Return the bytes per posting in all segments; None if no segment exists yet."""
    postings = figures.get("postings", 0)
    return figures["postings_bytes"] / postings if postings else None


def line_of(observed: Measurements) -> str:
    """Return the console line of a measured system."""
    if observed.skipped:
        return observed.skipped
    fresh = percentiles(observed.freshness_ms)
    errors = counted(observed.errors.total(), "error")
    return f"fresh p50 {fresh['p50_ms']:.2f} ms, p99 {fresh['p99_ms']:.2f} ms, {errors}"


def draw_services(services: Services, path: Path) -> None:
    """Draw freshness over percentiles, and p50 to p99 of each kind of query, for all systems."""
    systems = services.measured_systems
    figure = new_figure(11.0, 4.8)
    left, right = figure.subplots(1, 2)
    colours = dict(zip(systems, COLOURS, strict=False))
    freshness = {name: each.freshness_ms for name, each in systems.items() if each.freshness_ms}
    for name, values in freshness.items():
        draw_over_percentiles(left, values, color=colours[name], linewidth=1.7, label=name)
    left.set_title(f"freshness at {services.parameters.documents_per_s:g} documents a second")
    left.set_xlabel("percentile of the documents")
    left.set_ylabel("ms from the due time until found")
    if freshness:
        mark_percentiles(left, max(map(len, freshness.values())))
        plain_log_scale(left)
        left.legend(frameon=False)
    style_curves(left)
    bars = [
        Bar(kind, name, Spread(ms["p50_ms"], ms["p50_ms"], ms["p99_ms"]), colours[name])
        for kind in KINDS
        for name, each in systems.items()
        if kind in each.queries
        for ms in [percentiles(each.queries[kind])]
    ]
    draw_bars(right, bars)
    if bars:
        plain_log_scale(right)
    right.set_title(f"queries at {services.parameters.queries_per_s:g} a second: p50 to p99")
    right.set_ylabel("ms from the due time until answered")
    save(figure, path)


def _format_ms(ms: float) -> str:
    return "" if isnan(ms) else three_digits(ms)


def _measurements_as_json(each: Measurements) -> dict[str, object]:
    if each.skipped:
        return {"skipped": each.skipped}
    return {
        "freshness": _percentiles(each.freshness_ms),
        "durable": _percentiles(each.acknowledged_ms),
        "queries": {
            kind: _percentiles(each.queries[kind]) for kind in KINDS if kind in each.queries
        },
        "send_delay": _percentiles(each.send_delay_ms),
        "documents_per_s": to_json_number(each.fill_per_s),
        "errors": each.errors.total(),
        "errors_by_kind": dict(sorted(each.errors.items())),
        "bytes_per_posting": bytes_per_posting(each.figures),
        "memory_mib": to_json_numbers(each.memory_mib),
        "cores": to_json_numbers(each.cores),
        "figures": to_json_numbers(each.figures),
    }


def to_json_numbers(figures: Mapping[str, float]) -> dict[str, object]:
    """Return figures rounded for JSON."""
    return {name: to_json_number(value) for name, value in figures.items()}


def _percentiles(values: Sequence[float]) -> dict[str, object]:
    return {**to_json_numbers(percentiles(values)), "count": len(values)}
