"""The figures of a service and of its peers: tables, JSON, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from driftline.bench.measuring.load import Observed, Wanted
from driftline.bench.measuring.meter import percentiles
from driftline.bench.measuring.queries import KINDS
from driftline.bench.report.pictures import mark_percentiles, place_of
from driftline.bench.report.rows import ENOUGH_FOR_P99, enough_for_p99
from driftline.bench.report.spread import number, three_digits
from driftline.engine.ui.consoles import new_table, should_be_zero
from driftline.engine.ui.pictures import COLOURS, dress_curves, new_figure, plain_log_scale, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS = "driftline"

BEHIND_S = 1.0
"""A peer that ends so much later than the load does not keep up with it."""

LATE_MS = 5.0
"""A load whose 99th percentile of lateness is above this says more of the machine."""

NOTE = (
    "Latencies in ms, all from the time at which a request is due. Fresh: until the answer to a "
    "query that finds the document by a word of its own; durable: until the write is acknowledged. "
    "documents/s: of those that were put in first, until the last is found."
)


@dataclass(frozen=True, slots=True)
class Services:
    """What was observed of a service, and of each of its peers."""

    wanted: Wanted
    nodes: int
    searchers: int
    ours: Observed
    peers: Mapping[str, Observed] = field(default_factory=dict)
    sync_ms: float = nan
    """What it takes here to append 4 KiB and wait for the disk."""

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return {
            **_json(self.ours),
            "peers": {name: _json(each) for name, each in self.peers.items()},
            "documents": self.wanted.documents,
            "rate": self.wanted.rate,
            "searches": self.wanted.searches,
            "seconds": self.wanted.seconds,
            "nodes": self.nodes,
            "searchers": self.searchers,
            "sync_ms": number(self.sync_ms),
        }

    def tables(self) -> list[Table]:
        """For a terminal: freshness, queries, and what the processes take."""
        return [self._freshness(), *([self._queries()] if self.wanted.searches else []),
                self._processes()]  # fmt: skip

    def problems(self) -> list[str]:
        """What must not be; errors of peers are no problems of ours."""
        return [f"{what}: {count} times" for what, count in sorted(self.ours.errors.items())]

    @property
    def _all(self) -> dict[str, Observed]:
        return {OURS: self.ours, **self.peers}

    def _freshness(self) -> Table:
        wanted = self.wanted
        table = new_table(
            f"{wanted.rate:g} documents and {wanted.searches:g} queries a second, over "
            f"{wanted.documents:,} documents, {wanted.seconds:g} s",
            ["system"],
            ["documents/s", "fresh p50", "p99", "durable p50", "p99", "late p99", "errors"],
        )
        for name, each in self._all.items():
            if each.skipped:
                table.add_row(name, *["-"] * 7)
                continue
            fresh, durable = percentiles(each.freshness), percentiles(each.acknowledged)
            late = percentiles(each.late)["p99_ms"]
            shown = [fresh["p50_ms"], fresh["p99_ms"], durable["p50_ms"], durable["p99_ms"], late]
            table.add_row(
                name,
                f"{each.fill_per_s:,.0f}",
                *map(_shown, shown),
                should_be_zero(each.errors.total()),
            )
        notes = [NOTE, f"To append 4 KiB and wait for the disk takes {self.sync_ms:.2f} ms here."]
        if wanted.rate and not enough_for_p99(count := len(self.ours.freshness)):
            notes.append(
                f"A p99 is steady from {ENOUGH_FOR_P99:,} latencies on; here are {count:,}: give "
                "more --seconds."
            )
        if (late := percentiles(self.ours.late)["p99_ms"]) > LATE_MS:
            notes.append(
                f"The load itself was late by {late:.1f} ms (p99): the machine has other work, and "
                "the latencies are also its."
            )
        notes += [
            f"{name}: a commit alone takes {each.figures['commit_p50_ms']:.1f} ms (p50), "
            f"{each.figures['commit_p99_ms']:.1f} ms (p99)"
            + (
                f"; it was {behind:.1f} s behind at the end, so its latencies grow with --seconds"
                if (behind := each.figures["behind_s"]) > BEHIND_S
                else ""
            )
            for name, each in self.peers.items()
            if "commit_p50_ms" in each.figures
        ]
        notes += [f"{name}: {each.skipped}" for name, each in self.peers.items() if each.skipped]
        table.caption = Text("\n".join(notes))
        return table

    def _queries(self) -> Table:
        measured = {name: each for name, each in self._all.items() if not each.skipped}
        table = new_table(
            "Queries: p50, p99 in ms", ["form", "queries"], list(measured)
        )  # fmt: skip
        for kind in KINDS:
            if kind in self.ours.queries:
                figures = [percentiles(each.queries.get(kind, ())) for each in measured.values()]
                table.add_row(
                    kind,
                    f"{len(self.ours.queries[kind]):,}",
                    *(f"{_shown(f['p50_ms'])}, {_shown(f['p99_ms'])}" for f in figures),
                )
        return table

    def _processes(self) -> Table:
        table = new_table("Processes", ["process"], ["cores busy", "memory, MiB"])
        for system, each in self._all.items():
            for name, mib in each.memory_mib.items():
                shown = f"{system}: {name}" if name != system else name
                table.add_row(shown, f"{each.cores.get(name, nan):.2f}", f"{mib:.0f}")
        per_posting = bytes_per_posting(self.ours.figures)
        if per_posting is not None:
            plain = self.ours.figures["postings_bytes_without_positions"]
            table.caption = Text(
                f"{per_posting:.2f} bytes a posting in segments, "
                f"{plain / self.ours.figures['postings']:.2f} without positions"
            )
        return table


def bytes_per_posting(figures: Mapping[str, float]) -> float | None:
    """Of all segments; None if all is in memory still."""
    postings = figures.get("postings", 0)
    return figures["postings_bytes"] / postings if postings else None


def _shown(ms: float) -> str:
    return "" if isnan(ms) else three_digits(ms)


def _json(each: Observed) -> dict[str, object]:
    if each.skipped:
        return {"skipped": each.skipped}
    return {
        "freshness": _percentiles(each.freshness),
        "durable": _percentiles(each.acknowledged),
        "queries": {
            kind: _percentiles(each.queries[kind]) for kind in KINDS if kind in each.queries
        },
        "late": _percentiles(each.late),
        "documents_per_s": number(each.fill_per_s),
        "errors": each.errors.total(),
        "errors_by_kind": dict(sorted(each.errors.items())),
        "bytes_per_posting": bytes_per_posting(each.figures),
        "memory_mib": {name: number(mib) for name, mib in each.memory_mib.items()},
        "cores": {name: number(cores) for name, cores in each.cores.items()},
        "figures": {name: number(value) for name, value in each.figures.items()},
    }


def _percentiles(values: Sequence[float]) -> dict[str, object]:
    figures = {name: number(ms) for name, ms in percentiles(values).items()}
    return {**figures, "count": len(values)}


def draw_services(services: Services, path: Path) -> None:
    """Draw freshness over percentiles, and p50 to p99 of each form of query, for all systems."""
    shown = {name: each for name, each in services._all.items() if not each.skipped}
    figure = new_figure(11.0, 4.8)
    left, right = figure.subplots(1, 2)
    for (name, each), colour in zip(shown.items(), COLOURS, strict=False):
        ranked = sorted(each.freshness)
        places = [place_of((rank + 0.5) / len(ranked)) for rank in range(len(ranked))]
        left.plot(places, ranked, color=colour, linewidth=1.7, label=name)
    mark_percentiles(left, max([2, *(len(each.freshness) for each in shown.values())]))
    left.set_title(f"freshness at {services.wanted.rate:g} documents a second")
    left.set_xlabel("percentile of the documents")
    left.set_ylabel("ms from the due time until found")
    if any(each.freshness for each in shown.values()):
        plain_log_scale(left)
    dress_curves(left)
    left.legend(frameon=False)
    _draw_queries(right, shown)
    right.set_title(f"queries at {services.wanted.searches:g} a second: p50 to p99")
    save(figure, path)


def _draw_queries(panel: Axes, shown: Mapping[str, Observed]) -> None:
    kinds = [kind for kind in KINDS if any(kind in each.queries for each in shown.values())]
    step = 0.7 / max(1, len(shown))
    for (column, each), colour in zip(enumerate(shown.values()), COLOURS, strict=False):
        for row, kind in enumerate(kinds):
            if kind in each.queries:
                figures = percentiles(each.queries[kind])
                at = row - 0.35 + step * (column + 0.5)
                low, high = figures["p50_ms"], figures["p99_ms"]
                panel.plot([at, at], [low, high], color=colour, linewidth=2, marker="_")
                panel.plot([at], [low], color=colour, marker="o", markersize=4)
    panel.set_xticks(range(len(kinds)), kinds)
    if kinds:
        plain_log_scale(panel)
    panel.set_ylabel("ms from the due time until answered")
    dress_curves(panel)
