"""How long something took of late.

>>> answers = Lately("answer")
>>> for seconds in (0.001, 0.002, 0.009):
...     answers.add(100.0, seconds)
>>> answers.figures(101.0)
{'answer_p50_s': 0.002, 'answer_p99_s': 0.009}
>>> answers.figures(200.0)
{}
"""

from __future__ import annotations

from collections import deque

SPAN_S = 10.0
"""What is of late."""

MOST = 2_000
"""The last ones that are kept."""


class Lately:
    """Durations of the last seconds; `name`: what took so long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._taken: deque[tuple[float, float]] = deque(maxlen=MOST)
        """When, and how long."""

    def add(self, now: float, seconds: float) -> None:
        """It has taken so long."""
        self._taken.append((now, seconds))

    def figures(self, now: float) -> dict[str, float]:
        """The median and the 99th percentile, if there was any."""
        found = sorted(seconds for at, seconds in self._taken if at >= now - SPAN_S)
        if not found:
            return {}
        return {
            f"{self._name}_p50_s": found[len(found) // 2],
            f"{self._name}_p99_s": found[len(found) * 99 // 100],
        }
