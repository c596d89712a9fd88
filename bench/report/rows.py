"""The rows of a benchmark: a case, all of its runs, and the medians of their figures.

A row that could not be measured has a reason in place of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driftline.bench.measuring.meter import LatencyResult, ThroughputResult
from driftline.bench.report.spread import NOTHING, Spread, number
from driftline.bench.systems.cases import Case

LATENCY_FIGURES = ("p50_ms", "p75_ms", "p95_ms", "p99_ms", "max_ms")
THROUGHPUT_FIGURES = ("documents_per_s", "records_per_s", "cpu_cores")

ENOUGH_FOR_P99 = 1500
"""Latencies that a row needs for a 99th percentile: 15 of them are above it."""


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Latency of a case."""

    case: Case
    runs: Sequence[LatencyResult]
    """One for each round."""
    reason: str | None = None
    """Why there are none, or None."""

    @property
    def documents(self) -> int:
        """Latencies of all runs."""
        return sum(run.documents for run in self.runs)

    @property
    def too_few(self) -> bool:
        """Whether there are latencies, but too few for a 99th percentile."""
        return 0 < self.documents < ENOUGH_FOR_P99

    @property
    def compared(self) -> list[float]:
        """Of each run the figure by which rows are compared: the median, in ms."""
        return [run.latency["p50_ms"] for run in self.runs]

    @property
    def lost(self) -> int:
        """Lost records of all runs."""
        return sum(run.lost for run in self.runs)

    @property
    def duplicated(self) -> int:
        """Records of all runs that came again."""
        return sum(run.duplicated for run in self.runs)

    def figure(self, name: str) -> Spread:
        """A figure of LATENCY_FIGURES, in ms."""
        if name == "p99_ms" and self.too_few:
            return NOTHING
        return Spread.of(run.latency[name] for run in self.runs)

    def lateness(self, name: str) -> Spread:
        """The same of the producer's lateness."""
        return Spread.of(run.lateness[name] for run in self.runs)

    def as_json(self) -> dict[str, object]:
        """The medians, and all runs."""
        return {
            **{name: number(self.figure(name).median) for name in LATENCY_FIGURES},
            "lost": self.lost,
            "duplicated": self.duplicated,
            "latencies": self.documents,
            "late_p99_ms": number(self.lateness("p99_ms").median),
            "durable": self.case.keeps,
            "runs": [
                {
                    **{name: number(run.latency[name]) for name in LATENCY_FIGURES},
                    "lost": run.lost,
                    "duplicated": run.duplicated,
                    "latencies": run.documents,
                    "late_p99_ms": number(run.lateness["p99_ms"]),
                    "late_max_ms": number(run.lateness["max_ms"]),
                }
                for run in self.runs
            ],
        }


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """Throughput of a case."""

    case: Case
    runs: Sequence[ThroughputResult]
    """One for each round."""
    reason: str | None = None
    """Why there are none, or None."""

    @property
    def compared(self) -> list[float]:
        """Of each run the figure by which rows are compared: documents a second."""
        return [run.documents_per_s for run in self.runs]

    @property
    def lost(self) -> int:
        """Lost records of all runs."""
        return sum(run.lost for run in self.runs)

    @property
    def duplicated(self) -> int:
        """Records of all runs that came again."""
        return sum(run.duplicated for run in self.runs)

    def figure(self, name: str) -> Spread:
        """A figure of THROUGHPUT_FIGURES."""
        return Spread.of(_figure(run, name) for run in self.runs)

    def as_json(self) -> dict[str, object]:
        """The medians, and all runs."""
        return {
            **{name: number(self.figure(name).median) for name in THROUGHPUT_FIGURES},
            "lost": self.lost,
            "duplicated": self.duplicated,
            "durable": self.case.keeps,
            "runs": [
                {
                    **{name: number(_figure(run, name)) for name in THROUGHPUT_FIGURES},
                    "lost": run.lost,
                    "duplicated": run.duplicated,
                }
                for run in self.runs
            ],
        }


def _figure(run: ThroughputResult, name: str) -> float:
    figure = getattr(run, name)
    assert isinstance(figure, float | int)
    return figure


Row = LatencyRow | ThroughputRow
