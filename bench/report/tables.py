"""The figures of a benchmark, as a table for people and as JSON for programs.

A `Latencies` or `Throughputs` has the rows of one benchmark and the floor's figures; the same rows
go to `report.pictures`. A row has a policy and its checkpoint interval, None for a policy without
checkpoints. The policy `none`, which is Driftline without guarantees, is the baseline of all
figures. A row that could not be measured has a reason in place of figures; the reason is below the
table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from rich.table import Table
from rich.text import Text

from driftline.bench.measuring.meter import LatencyResult, ThroughputResult
from driftline.engine.ui.consoles import new_table, should_be_zero

BASELINE = "none"
"""The policy that the overhead of the others is measured against."""

COUNTS = ("lost", "duplicated")
LATENCY_FIGURES = ("p50_ms", "p75_ms", "p95_ms", "p99_ms", "max_ms")
THROUGHPUT_FIGURES = ("documents_per_s", "records_per_s", "cpu_cores")


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Latency of one policy with one checkpoint interval."""

    policy: str
    checkpoint_ms: int | None
    p50_ms: float
    p75_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    lost: int = 0
    duplicated: int = 0
    reason: str | None = None

    @classmethod
    def of(
        cls,
        policy: str,
        checkpoint_ms: int | None,
        result: LatencyResult,
        reason: str | None = None,
    ) -> "LatencyRow":
        """The row of a result; `reason`: why there is no result, or None."""
        return cls(
            policy,
            checkpoint_ms,
            **result.latency,
            lost=result.lost,
            duplicated=result.duplicated,
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """Throughput of one policy with one checkpoint interval."""

    policy: str
    checkpoint_ms: int | None
    documents_per_s: float
    records_per_s: float
    cpu_cores: float
    lost: int = 0
    duplicated: int = 0
    reason: str | None = None

    @classmethod
    def of(
        cls,
        policy: str,
        checkpoint_ms: int | None,
        result: ThroughputResult,
        reason: str | None = None,
    ) -> "ThroughputRow":
        """The row of a result; `reason`: why there is no result, or None."""
        return cls(
            policy,
            checkpoint_ms,
            documents_per_s=result.documents_per_s,
            records_per_s=result.records_per_s,
            cpu_cores=result.cpu_cores,
            lost=result.lost,
            duplicated=result.duplicated,
            reason=reason,
        )


Row = LatencyRow | ThroughputRow


@dataclass(frozen=True, slots=True)
class Latencies:
    """The figures of an open-loop benchmark."""

    rate: float  # documents a second
    documents: int
    nodes: int
    floor: LatencyResult
    rows: Sequence[LatencyRow]

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return {
            "rate": self.rate,
            "documents": self.documents,
            "nodes": self.nodes,
            "floor": {name: _number(self.floor.latency[name]) for name in LATENCY_FIGURES},
            "rows": [_as_json(row, LATENCY_FIGURES) for row in self.rows],
        }

    def table(self) -> Table:
        """The figures as a table for a terminal; `of floor` and `over none` compare medians."""
        table = _table(
            f"Latency in ms at {self.rate:g} documents a second, {self.nodes} nodes",
            ["p50", "p75", "p95", "p99", "max", "of floor", f"over {BASELINE}", *COUNTS],
        )
        floor = [_ms(self.floor.latency[name]) for name in LATENCY_FIGURES]
        table.add_row("floor", "", *floor, "", "", *_counts(self.floor), end_section=True)
        baseline = next((row.p50_ms for row in self.rows if row.policy == BASELINE), None)
        for row in self.rows:
            if row.reason is not None:
                _add_reason(table, row)
                continue
            figures = [_ms(getattr(row, name)) for name in LATENCY_FIGURES]
            over = _overhead(row.p50_ms, None if row.policy == BASELINE else baseline)
            of_floor = f"x{row.p50_ms / self.floor.latency['p50_ms']:.2f}"
            table.add_row(*_policy_and_interval(row), *figures, of_floor, over, *_counts(row))
        return table


@dataclass(frozen=True, slots=True)
class Throughputs:
    """The figures of a closed-loop benchmark."""

    documents: int
    nodes: int
    floor: ThroughputResult
    rows: Sequence[ThroughputRow]

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object; `rate` is None, as the system sets its own."""
        return {
            "rate": None,
            "documents": self.documents,
            "nodes": self.nodes,
            "floor": {name: _number(getattr(self.floor, name)) for name in THROUGHPUT_FIGURES},
            "rows": [_as_json(row, THROUGHPUT_FIGURES) for row in self.rows],
        }

    def table(self) -> Table:
        """The figures as a table for a terminal."""
        table = _table(
            f"Throughput, {self.nodes} nodes",
            ["documents/s", "records/s", "cores", f"of {BASELINE}", *COUNTS],
        )
        table.add_row("floor", "", *_rates(self.floor), "", *_counts(self.floor), end_section=True)
        baseline = next((r.documents_per_s for r in self.rows if r.policy == BASELINE), None)
        for row in self.rows:
            if row.reason is not None:
                _add_reason(table, row)
                continue
            share = f"{row.documents_per_s / baseline:.0%}" if baseline else ""
            table.add_row(*_policy_and_interval(row), *_rates(row), share, *_counts(row))
        return table


def _as_json(row: Row, figures: Sequence[str]) -> dict[str, object]:
    return {
        "policy": row.policy,
        "checkpoint_ms": row.checkpoint_ms,
        **{name: _number(getattr(row, name)) for name in figures},
        "lost": row.lost,
        "duplicated": row.duplicated,
        **({} if row.reason is None else {"reason": row.reason}),
    }


def _number(value: float) -> float | None:
    """A figure with three digits; NaN, which JSON lacks, as None."""
    return round(value, 3) if isfinite(value) else None


def _table(title: str, figures: Sequence[str]) -> Table:
    return new_table(title, ["policy"], ["checkpoint_ms", *figures])


def _add_reason(table: Table, row: Row) -> None:
    """Add a row without figures; its reason goes to the caption, as a column is too narrow."""
    table.add_row(*_policy_and_interval(row), *["-"] * (len(table.columns) - 2))
    caption = table.caption or Text()
    assert isinstance(caption, Text)
    table.caption = caption.append(f"{row.policy}: {row.reason}\n")


def _policy_and_interval(row: Row) -> tuple[str, str]:
    return row.policy, "" if row.checkpoint_ms is None else str(row.checkpoint_ms)


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _rates(measured: ThroughputResult | ThroughputRow) -> tuple[str, str, str]:
    return (
        f"{measured.documents_per_s:,.0f}",
        f"{measured.records_per_s:,.0f}",
        f"{measured.cpu_cores:.2f}",
    )


def _overhead(value: float, baseline: float | None) -> str:
    return f"{value - baseline:+.2f} (x{value / baseline:.2f})" if baseline else ""


def _counts(measured: LatencyResult | ThroughputResult | Row) -> tuple[str, str]:
    return should_be_zero(measured.lost), should_be_zero(measured.duplicated)
