"""Watermarks of a node, for status reports: how far they have advanced, and what holds them back.

`WatermarkMonitor` compares the watermarks of the sources with those of its last call, so it costs
nothing per element. The node calls it every 0.2 s, and keeps it across incarnations, so that a
replay of the same event times does not count as movement.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftline.engine.event_time import Clock
from driftline.engine.operators.timed import TimedStep


class WatermarkMonitor:
    """Monitor of the sources' watermarks: their values, and when each last moved.

    `names`: the names of the flow's sources, in the order of the clock's fronts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._reported: dict[int, tuple[int, int, float]] = {}
        """Front -> (largest watermark, last status, when either last changed)."""

    def update(self, clock: Clock, now: float) -> None:
        """Note which watermarks and statuses have changed since the last call.

        `now`: seconds, monotonic.
        """
        for front, delay in enumerate(clock.delays):
            if delay is None:
                continue
            watermark, status = clock.source_watermark(front), clock.sources[front][1]
            reported = self._reported.get(front)
            if reported is None:
                self._reported[front] = watermark, status, now
            elif watermark > reported[0] or status != reported[1]:
                self._reported[front] = max(watermark, reported[0]), status, now

    def sources(self, clock: Clock, now: float) -> tuple[tuple[str, int, int, int], ...]:
        """Return the rows of `StatusReport.sources`. `now`: seconds, monotonic."""
        self.update(clock, now)
        return tuple(
            (
                self._names[front],
                clock.source_watermark(front),
                int(clock.sources[front][1]),
                int((now - since) * 1000),
            )
            for front, (_, _, since) in self._reported.items()
        )

    def operators(
        self, clock: Clock, steps: Sequence[TimedStep]
    ) -> tuple[tuple[str, int, str], ...]:
        """Return the rows of `StatusReport.operators`."""
        rows = []
        for step in steps:
            holding = clock.holding_front(step.watermark.fronts)
            name = "" if holding is None else self._names[holding]
            rows.append((step.vertex.name, step.watermark.newest, name))
        return tuple(rows)
