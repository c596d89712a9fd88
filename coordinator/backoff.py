"""Back-off: the pause before a recovery, which grows while recoveries bring no progress.

Takes: the progress of the run (the processed and the delivered frontier, the number of committed
snapshots). Gives: the pause in seconds before the next recovery.
Invariant: there is no pause if the run has made progress since the recovery before. Progress is a
time that the run had never reached, or a committed snapshot; a replay is not progress.
"""

from __future__ import annotations

FIRST_S, LONGEST_S = 0.1, 10.0
"""The first pause, which doubles from then on, and the longest one."""


class Backoff:
    """Counts the recoveries of one coordinator that brought no progress."""

    def __init__(self) -> None:
        self.nowhere = 0
        """Recoveries in a row before which the run had made no progress."""
        self._furthest: tuple[int, ...] = ()
        self._at_last_recovery: tuple[int, ...] | None = None
        """`_furthest` at the time of the last recovery."""

    def moved(self, *progress: int) -> None:
        """Note the progress of the run: numbers that never shrink but in a replay."""
        self._furthest = tuple(map(max, self._furthest or progress, progress))

    def pause_s(self) -> float:
        """Count a recovery that is needed now. Returns the pause before it, in seconds."""
        progressed = self._furthest != self._at_last_recovery
        self._at_last_recovery = self._furthest
        self.nowhere = 0 if progressed else self.nowhere + 1
        return min(LONGEST_S, FIRST_S * 2 ** (self.nowhere - 1)) if self.nowhere else 0.0
