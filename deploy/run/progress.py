"""The progress of a run, in figures that are true: from its fronts, and from answers of its nodes.

On a terminal they are a line that changes; elsewhere a log line every 10 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from driftline.deploy.parties.front import Front
from driftline.deploy.parties.meter import percentile
from driftline.deploy.parties.watch import Watch
from driftline.engine.events import Field, about, log
from driftline.engine.sinks.jsonl import outputs_in
from driftline.engine.ui.progress import ProgressView

RATE_OVER_S = 5.0
"""Seconds over which the rate is taken."""

SHOWN_EVERY_S = 0.25
"""Seconds between two looks."""

LOGGED_EVERY_S = 10.0
"""Seconds between two log lines."""


@dataclass(frozen=True, slots=True)
class Figures:
    """How far a run is. Times in seconds; None: unknown."""

    records: int
    """Records that fronts have read, each once."""
    outputs: int
    """Outputs that consumers hold: of all calls of the command, without dead letters."""
    rate: float
    """Records per second, over the last seconds."""
    under_way: int
    """Records whose outputs are not all delivered."""
    oldest_s: float
    """How long ago the oldest of them was read."""
    p50_s: float | None
    """Median of the time from reading a record to the delivery of its outputs, of late."""
    p99_s: float | None
    """The 99th percentile of the same."""
    state: str

    def __str__(self) -> str:
        parts = [
            f"{self.state}: {self.records} records",
            f"{self.outputs} outputs",
            f"{self.rate:.0f}/s",
            f"{self.under_way} under way ({self.oldest_s:.1f} s)",
        ]
        if self.p50_s is not None and self.p99_s is not None:
            parts.append(f"p50 {_shown(self.p50_s)}, p99 {_shown(self.p99_s)}")
        return ", ".join(parts)

    def fields(self) -> dict[str, Field]:
        """The same, for programs."""
        return {
            "records": self.records,
            "outputs": self.outputs,
            "records_per_s": self.rate,
            "under_way": self.under_way,
            "oldest_s": self.oldest_s,
            "p50_s": self.p50_s,
            "p99_s": self.p99_s,
            "state": self.state,
        }


class RunProgress:
    """The progress of one run, shown on a terminal or logged."""

    def __init__(self, fronts: Sequence[Front], watch: Watch, output: Path) -> None:
        self._fronts = fronts
        self._watch = watch
        self._output = output
        self._show_at = 0.0
        self._log_at = inf
        self._read: deque[tuple[float, int]] = deque()
        """(time, records read by then) of the last seconds"""

    def tell(self, now: float, view: ProgressView) -> None:
        """Show the figures, or log them, if it is time; `now`: seconds, monotonic."""
        if now < self._show_at:
            return
        self._show_at = now + SHOWN_EVERY_S
        figures = self.look(now)
        if view.shown:
            view.show_line(str(figures))
            return
        if self._log_at == inf:
            self._log_at = now + LOGGED_EVERY_S
        if now >= self._log_at:
            self._log_at = now + LOGGED_EVERY_S
            log.info("%s", figures, extra=about("progress", **figures.fields()))

    def end(self, now: float, view: ProgressView) -> None:
        """Show the last figures. Precondition: all outputs are delivered, all nodes have ended."""
        outputs = outputs_in(self._output)
        last = replace(self.look(now), outputs=outputs, under_way=0, oldest_s=0.0, state="over")
        view.show_line(str(last))
        log.debug("%s", last, extra=about("progress", **last.fields()))

    def look(self, now: float) -> Figures:
        """The figures now; `now`: seconds, monotonic."""
        meters = [front.meter for front in self._fronts]
        records = sum(front.taken for front in self._fronts)
        latencies = [latency for meter in meters for latency in meter.recent(now)]
        return Figures(
            records,
            self._watch.outputs,
            self._rate(now, records),
            sum(meter.under_way for meter in meters),
            max(meter.oldest_s(now) for meter in meters),
            percentile(latencies, 50),
            percentile(latencies, 99),
            self._watch.state(now),
        )

    def _rate(self, now: float, records: int) -> float:
        read = self._read
        read.append((now, records))
        while read[0][0] < now - RATE_OVER_S and len(read) > 2:
            read.popleft()
        since, before = read[0]
        return (records - before) / (now - since) if now > since else 0.0


def _shown(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
