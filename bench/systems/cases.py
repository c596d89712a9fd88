"""The cases of a comparison, each a row of a table.

Spark checkpoints every batch, so it has no interval. The floor is a row like the others: where a
case may be None, None is the floor.

    >>> [str(case) for case in cases(["none", "exactly-once"], [50, 500])]
    ['none', 'exactly-once, checkpoint every 50 ms', 'exactly-once, checkpoint every 500 ms']
"""

from collections.abc import Sequence
from dataclasses import dataclass

from driftline.engine.policy import POLICIES, SnapshotCut

MICRO_BATCH = "micro-batch"
REAL_TIME = "micro-batch, real-time"
"""The same flow on Spark, with either of its triggers; MICRO_BATCH on a command line means both."""

CHOICES = (*POLICIES, MICRO_BATCH)

WITHOUT_INTERVAL = (SnapshotCut.NONE, SnapshotCut.PRODUCTIONS)
"""Cuts of policies without checkpoints, or with one in each turn: they have no interval."""


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, and the interval between its checkpoints; None if it has no interval."""

    policy: str
    checkpoint_ms: int | None

    def __str__(self) -> str:
        if self.checkpoint_ms is None:
            return self.policy
        return f"{self.policy}, checkpoint every {self.checkpoint_ms} ms"

    @property
    def micro_batch(self) -> bool:
        """Whether the case runs on Spark."""
        return self.policy in (MICRO_BATCH, REAL_TIME)


def cases(policies: Sequence[str], checkpoints_ms: Sequence[int]) -> list[Case]:
    """Policies without an interval once, the others with every interval, Spark once: in order."""
    ours = [name for name in policies if name in POLICIES]
    without = [name for name in ours if POLICIES[name].cut in WITHOUT_INTERVAL]
    return [
        *(Case(name, None) for name in without),
        *(Case(name, ms) for ms in checkpoints_ms for name in ours if name not in without),
        *(Case(name, None) for name in (MICRO_BATCH, REAL_TIME) if MICRO_BATCH in policies),
    ]
