"""Damage: bits that flip on a disk between two processes, and which outcomes it excuses.

The right outputs are always a right outcome. Where the only copy of something was damaged, a run
may also stop, with an error that names it. It must never go on with wrong data, or hang.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from driftline.deploy.simulation.world.disks import MasterDisk, NodeDisk
from driftline.deploy.simulation.world.timeline import Timeline
from driftline.engine.policy import Output, Policy

SENTENCES = ("SnapshotDamaged", "StateMismatch")


class Perishable(Protocol):
    """A store whose bits may flip: a disk, or a consumer's files."""

    def rot(self, chance: Random) -> str:
        """Flip one stored bit. Returns the name of the damaged object; "" if none was damaged."""


class Damages:
    """The damage done in one run."""

    def __init__(self, timeline: Timeline, registry: MasterDisk) -> None:
        self.names: set[str] = set()
        self._timeline = timeline
        self._registry = registry
        self._only_snapshots = True
        """Whether only the snapshots of nodes were damaged."""
        self._only_newest = True
        """Whether the snapshot before the last was intact after every damage."""

    def may_damage(self, store: Perishable) -> None:
        """Perhaps flip a bit of a store; called before a process that uses the store starts."""
        timeline = self._timeline
        snapshots = isinstance(store, NodeDisk)
        # Half as often for stores whose damage can only end the run: such runs test less.
        if not timeline.happens(timeline.faults.rot / (1 if snapshots else 2)):
            return
        name = store.rot(timeline.chance)
        if not name:
            return
        timeline.counted[f"rotten {name.partition('-')[0]}"] += 1
        timeline.tell(f"{name} is damaged")
        self.names.add(name)
        self._only_snapshots &= snapshots
        if isinstance(store, NodeDisk):
            self._only_newest &= self._is_newest(store)

    def explain(self, error: str, policy: Policy, *, given_input: bool) -> bool:
        """Whether the damage excuses a run that stopped with this error.

        `given_input`: whether the input can be read again from its beginning.
        """
        # Recoverable: from an older snapshot, or from the beginning of the input.
        written = self._registry.written
        from_input = given_input and (written is None or not written.base)
        recoverable = self._only_snapshots and (from_input or self._only_newest)
        if recoverable and policy.output is Output.FRONTIER:
            return False
        named = any(name in error for name in (*self.names, "the state directory"))
        return bool(self.names) and named and error.startswith(SENTENCES)

    def _is_newest(self, disk: NodeDisk) -> bool:
        """Whether the damaged part is the newest one, and the snapshot before it is intact."""
        if disk.rotten_part != max(disk.parts):
            return False
        state = self._registry.read()
        committed = [s.number for s in state.snapshots] if state is not None else []
        return len(committed) == 2 and disk.rotten_part > committed[1]
