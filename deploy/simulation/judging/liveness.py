"""Liveness: once nothing fails any more, a run gets on.

Getting on is: more is delivered, more is acknowledged to producers, or the run ends. What may keep
it from that for a while is what the roles themselves wait for (a silent member, work that does not
end) and what was still under way when the last fault ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driftline.deploy.parties.master import STALLED_AFTER_S
from driftline.deploy.simulation.world.world import World

LOOK_EVERY_S = 0.25

RECOVERY_S = 5.0
"""How long a recovery may take, from its reason to the first output after it."""

PATIENCE_S = STALLED_AFTER_S + RECOVERY_S
"""How long nothing may get on, in virtual seconds."""


@dataclass(slots=True)
class Watch:
    """Looks now and then whether a run gets on."""

    world: World
    progress: Callable[[], object]
    """Something that changes whenever the run gets on."""
    longest_s: float = 0.0
    stalled: bool = False
    _before: object = None
    _since: float = 0.0

    def begin(self, since: float) -> None:
        """Look from a moment on, at which nothing fails and all input has come."""
        self._since = since
        self.world.timeline.at_time(since, self._look)

    def _look(self) -> None:
        timeline = self.world.timeline
        now, progress = timeline.now, self.progress()
        away = max(host.away_until for host in self.world.hosts.values())
        if progress != self._before or away > now:
            self._before, self._since = progress, max(now, away)
        self.longest_s = max(self.longest_s, now - self._since)
        if now - self._since > PATIENCE_S:
            timeline.over = self.stalled = True
        timeline.after(LOOK_EVERY_S, self._look)
