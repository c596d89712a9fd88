"""The limits of a run: after which time something counts as gone, lost or slow."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.host.children.deaths import DEATHS_MAX
from driftline.deploy.host.loop.heartbeat import SLOW_AFTER_S
from driftline.deploy.parties.master import STALLED_AFTER_S


@dataclass(frozen=True, slots=True)
class Limits:
    """Each is an option of `driftline run`."""

    missing_after_s: float = MISSING_AFTER_S
    """Silence after which a node or front counts as dead."""
    stalled_after_s: float = STALLED_AFTER_S
    """How long work may stay unfinished, while no node works, before it counts as lost."""
    slow_after_s: float = SLOW_AFTER_S
    """How long an element may take before a warning."""
    deaths: int = DEATHS_MAX
    """How often a process may die without progress of the run; then the run ends."""


LIMITS = Limits()
"""The defaults."""
