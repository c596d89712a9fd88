"""Liveness: after the last fault, a run makes progress.

Progress is: another bundle is delivered, another record is acknowledged to a producer, or a process
ends. It may pause as long as the roles themselves wait (for a silent member, for work that does not
end), plus the time of one recovery; where there are holes in the network, also as long as each
master waits that does not reach a member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.coordinator.leadership import PATIENCE_S as MAKES_WAY_AFTER_S
from driftline.deploy.parties.master import STALLED_AFTER_S
from driftline.deploy.simulation.world.world import World

LOOK_EVERY_S = 0.25

RECOVERY_S = 5.0
"""How long a recovery may take, from its reason to the first output after it."""

PATIENCE_S = STALLED_AFTER_S + RECOVERY_S
"""Virtual seconds without progress after which a run counts as stalled."""

HANDOVER_S = MISSING_AFTER_S + MAKES_WAY_AFTER_S + 2.0
"""The time of one leader that makes way: from the last sign of a member to the next leader."""


@dataclass(slots=True)
class Watch:
    """Checks at intervals whether a run makes progress, and stops a run that stalls."""

    world: World
    progress: Callable[[], object]
    """Returns a value that changes with every progress."""
    patience_s: float = PATIENCE_S
    longest_s: float = 0.0
    """The longest time without progress so far, in virtual seconds."""
    stalled: bool = False
    _before: object = None
    _since: float = 0.0

    def begin(self, since: float) -> None:
        """Check from the time `since` on: all faults are over then, and all input has come."""
        self._since = since
        self.world.timeline.at_time(since, self._look)

    def _look(self) -> None:
        timeline = self.world.timeline
        now, progress = timeline.now, self.progress()
        away = max(host.away_until for host in self.world.hosts.values())
        away = now + LOOK_EVERY_S if away == inf else away  # until it is replaced, or for ever
        if progress != self._before or away > now:
            self._before, self._since = progress, max(now, away)
        self.longest_s = max(self.longest_s, now - self._since)
        if now - self._since > self.patience_s:
            timeline.over = self.stalled = True
        timeline.after(LOOK_EVERY_S, self._look)
