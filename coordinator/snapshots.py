"""A snapshot that is being taken: who has not answered, and what the others have said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from driftline.coordinator.registry import SnapshotRecord

ADVICE = (
    "Restore the state directory from a copy of the same moment, or begin anew: remove the state "
    "directory and the outputs"
)
"""What to do if none can be loaded."""


@dataclass(slots=True)
class PendingSnapshot:
    """A snapshot as of `time`; `waiting`: the members that have not answered."""

    number: int
    time: int
    waiting: set[str]
    failed: bool = False
    """Whether a member could not write its part."""
    answers: dict[str, int] = field(default_factory=dict)
    """Member -> of a front, the time that it would go on from; of a node, its newest production."""

    def record(self, fronts: Sequence[str], nodes: Sequence[str], taken: int) -> SnapshotRecord:
        """The record that commits it. `taken`: the incarnation; `nodes`: those with productions.

        A front that has not been asked goes on from the snapshot's time.
        """
        offsets = tuple(self.answers.get(front, self.time) for front in fronts)
        parts = tuple(self.answers[node] for node in nodes)
        return SnapshotRecord(self.number, self.time, offsets, taken, parts)
