"""What is measured: the floor, Driftline under a policy and checkpoint interval, and Spark.

A `Case` is a row of a table; `Setup` is what all rows of one benchmark have in common, so that
they differ in nothing but the case. The floor is a row like the others and is written None. Spark
checkpoints every batch, so it has no interval; what it cannot do, its row gives the reason for.

    >>> [str(case) for case in cases(["none", "exactly-once"], [50, 500])]
    ['none', 'exactly-once, checkpoint every 50 ms', 'exactly-once, checkpoint every 500 ms']
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rich.console import Console

from driftline.bench.engine import Engine
from driftline.bench.floor import Documents, Floor
from driftline.bench.meter import System
from driftline.bench.microbatch import MicroBatch
from driftline.bench.options import MICRO_BATCH, REAL_TIME
from driftline.bench.report import Row
from driftline.engine.policy import POLICIES, Output, SnapshotCut

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


@dataclass(frozen=True, slots=True)
class Setup:
    """What all rows have in common."""

    documents: Documents
    nodes: int
    ordering: str

    def start(self, case: Case | None) -> AbstractContextManager[System]:
        """What is to be measured, fresh; entered, it is up and warm enough to be sent documents.

        Entering raises Refused where Spark cannot do the case.
        """
        if case is None:
            return Floor(self.documents, self.nodes)
        if case.micro_batch:
            return MicroBatch(self.documents, self.nodes, real_time=case.policy == REAL_TIME)
        return Engine(
            self.documents,
            case.policy,
            nodes=self.nodes,
            ordering=self.ordering,
            checkpoint_s=(case.checkpoint_ms or 1000) / 1000,
        )


def patience_s(case: Case | None) -> float:
    """How long nothing may arrive before a run is over: a batch takes seconds under load."""
    return 60.0 if case is not None and case.micro_batch else 10.0


def broken_promises(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row that lost or duplicated records although its policy says never."""
    sentences = []
    for row in rows:
        policy = POLICIES.get(row.policy)  # micro-batches promise both
        if row.lost and (policy is None or policy.replay):
            sentences.append(f"{row.policy} has lost {row.lost} records")
        if row.duplicated and (policy is None or policy.output is not Output.AT_ONCE):
            sentences.append(f"{row.policy} has delivered {row.duplicated} records twice")
    return sentences


class Progress:
    """A line for every run: what it is, and what came of it once it is over.

    Nothing is drawn while a run lasts: that would be measured, too.
    """

    def __init__(self, console: Console, runs: int) -> None:
        self.console = console
        self.runs = runs
        self.begun = 0

    def begin(self, what: object) -> None:
        """The next run begins."""
        self.begun += 1
        self.console.print(f"{self.begun:>3} of {self.runs}  {what}: ", end="", highlight=False)

    def end(self, result: str) -> None:
        """It is over."""
        self.console.print(result, highlight=False)
