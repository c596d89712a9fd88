"""Kills on purpose (`--kill-every`) that come so soon that the run cannot get any further.

Takes kills, and how far the run is. Gives a warning, the first after a few kills in a row without
progress, then every 30 s at most. A run without work makes no progress, either, and needs none.
"""

from __future__ import annotations

from math import inf

from driftline.engine.events import TOLD_EVERY_S, about, log

IN_VAIN_MAX = 3
"""So many kills in a row may come before the run has got any further."""


class Kills:
    """The kills of one run."""

    def __init__(self) -> None:
        self._settled = 0
        """How far the run was at the last kill."""
        self._in_row = 0
        """The last kills that came before the run had got any further."""
        self._in_vain = self._count = 0
        """Kills since the last warning: such ones, and all."""
        self._tell_at = -inf

    def killed(self, now: float, settled: int, has_work: bool) -> None:
        """A process is killed; `settled`: how far the run has ever been; `now`: in seconds."""
        in_vain = has_work and settled == self._settled
        self._settled = settled
        self._in_row = self._in_row + 1 if in_vain else 0
        self._in_vain += in_vain
        self._count += 1
        if self._in_row < IN_VAIN_MAX or now < self._tell_at:
            return
        log.warning(
            "%d of the last %d kills came before the run had got any further, as a recovery takes "
            "longer: give --kill-every a larger number of seconds",
            *(self._in_vain, self._count),
            extra=about("killed-in-vain", in_vain=self._in_vain, kills=self._count),
        )
        self._tell_at = now + TOLD_EVERY_S
        self._in_vain = self._count = 0
