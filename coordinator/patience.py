"""Patience: how long who may be silent before it counts as gone.

A process that comes back from silence had only been busy, with something in which it could not even
be said to be alive; a replay brings it to the same place again. So it is given twice that time.
"""

from __future__ import annotations

import logging

log = logging.getLogger("driftline")

LONGEST_S = 600.0


class Patience:
    """With each member of a run."""

    def __init__(self, usual_s: float) -> None:
        self._usual = usual_s
        self._longer: dict[str, float] = {}
        self._gone: dict[str, tuple[str, float]] = {}
        """(process, when it was heard last) of who is silent for too long."""

    def with_(self, name: str) -> float:
        """How long a member may be silent."""
        return self._longer.get(name, self._usual)

    def gone(self, name: str, process: str, seen: float) -> None:
        """A process has been silent for too long."""
        self._gone[name] = process, seen

    def back(self, name: str, process: str, now: float) -> None:
        """A member says something, perhaps as a new process."""
        if name not in self._gone:
            return
        before, seen = self._gone.pop(name)
        self._longer.pop(name, None)
        if before == process:
            silent = now - seen
            self._longer[name] = min(2 * silent, LONGEST_S)
            log.warning(
                "%s is there again after %.0f s of silence; it may be silent for %.0f s now",
                *(name, silent, self._longer[name]),
            )

    def restarted(self, name: str) -> None:
        """A new process has to earn its time itself."""
        self._longer.pop(name, None)
