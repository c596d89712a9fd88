"""The limits of a run: how long what may take before somebody does, or says, something about it."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.host.deaths import DEATHS_MAX
from driftline.deploy.host.heartbeat import SLOW_AFTER_S
from driftline.deploy.parties.master import STALLED_AFTER_S


@dataclass(frozen=True, slots=True)
class Limits:
    """One for each option of `driftline run`."""

    missing_after_s: float = MISSING_AFTER_S
    """Silence after which a node or front counts as dead."""
    stalled_after_s: float = STALLED_AFTER_S
    """How long work may stay unfinished while nobody is at work before it counts as lost."""
    slow_after_s: float = SLOW_AFTER_S
    """How long an element may take before it is told."""
    deaths: int = DEATHS_MAX
    """Deaths of one process without progress of the run that end it."""


LIMITS = Limits()
"""Unless said otherwise."""
