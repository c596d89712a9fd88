"""What is measured: the floor, and Driftline under a policy with an interval between checkpoints.

A `Case` is a row of a table; `Setup` is what all rows of one benchmark have in common, so that
they differ in nothing but the case. The floor is a row like the others and is written None.

    >>> [str(case) for case in cases(["none", "exactly-once"], [50, 500])]
    ['none', 'exactly-once, checkpoint every 50 ms', 'exactly-once, checkpoint every 500 ms']
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rich.console import Console

from bench.engine import Engine
from bench.floor import Documents, Floor
from bench.meter import System
from bench.report import Row
from engine.policy import POLICIES, Output, SnapshotCut

WITHOUT_INTERVAL = (SnapshotCut.NONE, SnapshotCut.PRODUCTIONS)
"""No checkpoints, or one before anything leaves: nothing in a row depends on their interval."""


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, and the interval between checkpoints if it makes any."""

    policy: str
    checkpoint_ms: int | None

    @property
    def is_reference(self) -> bool:
        """Whether other rows are read against this one: it guarantees nothing."""
        return POLICIES[self.policy].cut is SnapshotCut.NONE

    def __str__(self) -> str:
        if self.checkpoint_ms is None:
            return self.policy
        return f"{self.policy}, checkpoint every {self.checkpoint_ms} ms"


def cases(policies: Sequence[str], checkpoints_ms: Sequence[int]) -> list[Case]:
    """Those without an interval once, first; then every other policy with every interval."""
    without = [name for name in policies if POLICIES[name].cut in WITHOUT_INTERVAL]
    return [Case(name, None) for name in without] + [
        Case(name, interval)
        for interval in checkpoints_ms
        for name in policies
        if name not in without
    ]


@dataclass(frozen=True, slots=True)
class Setup:
    """What all rows have in common."""

    documents: Documents
    nodes: int
    ordering: str

    def start(self, case: Case | None) -> AbstractContextManager[System]:
        """What is to be measured, fresh; entered, it is up and warm enough to be sent documents."""
        if case is None:
            return Floor(self.documents, self.nodes)
        return Engine(
            self.documents,
            case.policy,
            nodes=self.nodes,
            ordering=self.ordering,
            checkpoint_s=(case.checkpoint_ms or 1000) / 1000,
        )


def broken_promises(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row that lost or duplicated records although its policy says never."""
    sentences = []
    for row in rows:
        policy = POLICIES[row.policy]
        if row.lost and policy.replay:
            sentences.append(f"{row.policy} has lost {row.lost} records")
        if row.duplicated and policy.output is not Output.AT_ONCE:
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
