"""Back-off: recovery that gets nowhere waits before it is tried again, ever longer.

Takes how far the run has got; gives the pause before a recovery. A replay is no progress: only what
was never reached before counts, or a committed snapshot. So a single recovery never waits, nor does
one after another that helped.
"""

from __future__ import annotations

FIRST_S, LONGEST_S = 0.1, 10.0


class Backoff:
    """The recoveries of one coordinator."""

    def __init__(self) -> None:
        self.nowhere = 0
        """Recoveries in a row that got no further than the one before."""
        self._furthest: tuple[int, ...] = ()
        self._at_last: tuple[int, ...] | None = None

    def moved(self, *progress: int) -> None:
        """The run has got as far as this."""
        self._furthest = tuple(map(max, self._furthest or progress, progress))

    def pause_s(self) -> float:
        """How long to wait before the recovery that is needed now."""
        helped = self._furthest != self._at_last
        self._at_last = self._furthest
        self.nowhere = 0 if helped else self.nowhere + 1
        return min(LONGEST_S, FIRST_S * 2 ** (self.nowhere - 1)) if self.nowhere else 0.0
