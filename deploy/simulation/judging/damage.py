"""Damage: bits that flip while nobody runs, and what a run may make of them.

Equality is always right. A run may stop instead, with a sentence that names what is damaged, where
nothing else holds what was there. Never may it go on with something else, or hang.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from driftline.deploy.simulation.world.disks import MasterDisk, NodeDisk
from driftline.deploy.simulation.world.timeline import Timeline
from driftline.engine.policy import Output, Policy

SENTENCES = ("SnapshotDamaged", "StateMismatch")


class Perishable(Protocol):
    """Something that rots."""

    def rot(self, chance: Random) -> str:
        """Flip a bit of something. Returns the name of what is damaged; empty: nothing was."""


class Damages:
    """What has been damaged in a run."""

    def __init__(self, timeline: Timeline, registry: MasterDisk) -> None:
        self.names: set[str] = set()
        self._timeline = timeline
        self._registry = registry
        self._only_snapshots = True
        """Whether nothing but snapshots of nodes was damaged."""
        self._only_newest = True
        """Whether each time it was a part that the snapshot before the last does without."""

    def may_damage(self, thing: Perishable) -> None:
        """A process that uses it is about to start."""
        timeline = self._timeline
        snapshots = isinstance(thing, NodeDisk)
        # Less often where a run can only stop: there is more to see in one that goes on.
        if not timeline.happens(timeline.faults.rot / (1 if snapshots else 2)):
            return
        name = thing.rot(timeline.chance)
        if not name:
            return
        timeline.counted[f"rotten {name.partition('-')[0]}"] += 1
        timeline.tell(f"{name} is damaged")
        self.names.add(name)
        self._only_snapshots &= snapshots
        if isinstance(thing, NodeDisk):
            self._only_newest &= self._is_newest(thing)

    def explain(self, error: str, policy: Policy, *, given_input: bool) -> bool:
        """Whether a run may have stopped with this error."""
        # If so, an older snapshot is there, or the beginning of the input.
        recoverable = self._only_snapshots and (given_input or self._only_newest)
        if recoverable and policy.output is Output.FRONTIER:
            return False
        named = any(name in error for name in (*self.names, "the state directory"))
        return bool(self.names) and named and error.startswith(SENTENCES)

    def _is_newest(self, disk: NodeDisk) -> bool:
        """Whether what was damaged is the newest part, and another snapshot is there."""
        if disk.rotten_part != max(disk.parts):
            return False
        state = self._registry.read()
        committed = [s.number for s in state.snapshots] if state is not None else []
        return len(committed) == 2 and disk.rotten_part > committed[1]
