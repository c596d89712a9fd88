"""The rows of a benchmark: a case, all of its runs, and the medians of their figures.

A maximum is not a median: it is the largest of all runs, so that no figure of a row is above it.

A row that could not be measured has a reason in place of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

from driftline.bench.measuring.meter import LatencyResult, ThroughputResult
from driftline.bench.report.spread import Spread, number
from driftline.bench.systems.cases import Case

LATENCY_FIGURES = ("p50_ms", "p75_ms", "p95_ms", "p99_ms")
THROUGHPUT_FIGURES = ("documents_per_s", "outputs_per_s", "cpu_cores")

ENOUGH_FOR_P99 = 1500
"""Latencies that a row needs for a 99th percentile: 15 of them are above it."""


def enough_for_p99(latencies: int) -> bool:
    """Whether a row with so many latencies, of all its runs, has a 99th percentile."""
    return latencies >= ENOUGH_FOR_P99


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
        return self.documents > 0 and not enough_for_p99(self.documents)

    @property
    def compared(self) -> list[float]:
        """Of each run the figure by which rows are compared: the median, in ms."""
        return [run.latency["p50_ms"] for run in self.runs]

    @property
    def lost(self) -> int:
        """Lost outputs of all runs."""
        return sum(run.lost for run in self.runs)

    @property
    def duplicated(self) -> int:
        """Records of all runs that came again."""
        return sum(run.duplicated for run in self.runs)

    def figure(self, name: str) -> Spread:
        """A figure of LATENCY_FIGURES, in ms."""
        return Spread.of(self._percentile(run.latency, name) for run in self.runs)

    @property
    def late_p99(self) -> Spread:
        """The 99th percentile of the producer's lateness, in ms."""
        return Spread.of(self._percentile(run.lateness, "p99_ms") for run in self.runs)

    @property
    def max_ms(self) -> float:
        """The largest latency of all runs."""
        return Spread.of(run.latency["max_ms"] for run in self.runs).most

    def as_json(self) -> dict[str, object]:
        """The medians, the largest latency, and all runs."""
        return {
            **{name: number(self.figure(name).median) for name in LATENCY_FIGURES},
            "max_ms": number(self.max_ms),
            "lost": self.lost,
            "duplicated": self.duplicated,
            "latencies": self.documents,
            "late_p99_ms": number(self.late_p99.median),
            "durable": self.case.keeps,
            "runs": [
                {
                    **{
                        name: number(self._percentile(run.latency, name))
                        for name in LATENCY_FIGURES
                    },
                    "max_ms": number(run.latency["max_ms"]),
                    "lost": run.lost,
                    "duplicated": run.duplicated,
                    "latencies": run.documents,
                    "late_p99_ms": number(self._percentile(run.lateness, "p99_ms")),
                    "late_max_ms": number(run.lateness["max_ms"]),
                }
                for run in self.runs
            ],
        }

    def _percentile(self, of_run: Mapping[str, float], name: str) -> float:
        return nan if name == "p99_ms" and not enough_for_p99(self.documents) else of_run[name]


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
        """Lost outputs of all runs."""
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
