"""The cases: what is compared, each a row of a table.

Spark checkpoints every batch, so it has no interval. The floor is a row like the others and is
written None where a case may stand.

    >>> [str(case) for case in cases(["none", "exactly-once"], [50, 500])]
    ['none', 'exactly-once, checkpoint every 50 ms', 'exactly-once, checkpoint every 500 ms']
"""

from collections.abc import Sequence
from dataclasses import dataclass

from driftline.engine.policy import POLICIES, SnapshotCut

MICRO_BATCH = "micro-batch"
REAL_TIME = "micro-batch, real-time"
"""What no node does: the same flow on Spark, by either of its triggers; named by the first."""

CHOICES = (*POLICIES, MICRO_BATCH)

WITHOUT_INTERVAL = (SnapshotCut.NONE, SnapshotCut.PRODUCTIONS)
"""No checkpoints, or one before anything leaves: nothing in a row depends on their interval."""


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, and the interval between checkpoints if it is ours to choose."""

    policy: str
    checkpoint_ms: int | None

    def __str__(self) -> str:
        if self.checkpoint_ms is None:
            return self.policy
        return f"{self.policy}, checkpoint every {self.checkpoint_ms} ms"

    @property
    def micro_batch(self) -> bool:
        """Whether it is Spark's."""
        return self.policy in (MICRO_BATCH, REAL_TIME)


def cases(policies: Sequence[str], checkpoints_ms: Sequence[int]) -> list[Case]:
    """Those without an interval first, once; every other policy with every interval; Spark once."""
    ours = [name for name in policies if name in POLICIES]
    without = [name for name in ours if POLICIES[name].cut in WITHOUT_INTERVAL]
    return [
        *(Case(name, None) for name in without),
        *(Case(name, ms) for ms in checkpoints_ms for name in ours if name not in without),
        *(Case(name, None) for name in (MICRO_BATCH, REAL_TIME) if MICRO_BATCH in policies),
    ]
