"""Rounds: all cases take turns, several times.

A machine drifts within minutes. In turns, what is compared was measured at about the same time.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.console import Console

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.loops import System
from driftline.bench.systems.cases import Case
from driftline.bench.systems.engine import DurableEngine, Engine
from driftline.bench.systems.floor import DurableFloor, FloorProcesses
from driftline.bench.systems.microbatch import MicroBatch

Result = TypeVar("Result")

Turn = tuple[int, Case]
"""A round, from 0 on, and what is run in it."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings that all cases of a comparison share."""

    documents: Documents
    nodes: int

    def start(self, case: Case) -> AbstractContextManager[System]:
        """Return a new system for a case; entering starts and warms it up."""
        if case.is_floor:
            return (DurableFloor if case.durable else FloorProcesses)(self.documents, self.nodes)
        if case.is_micro_batch:
            return MicroBatch(self.documents, self.nodes)
        return (DurableEngine if case.durable else Engine)(
            self.documents,
            case.policy,
            nodes=self.nodes,
            checkpoint_s=(case.checkpoint_ms or 1000) / 1000,
        )


Measure = Callable[[System, Turn], tuple[Result, str]]
"""Measures a system that has been started: the result, and what a line says of it."""


def back_and_forth(cases: Sequence[Case], rounds: int) -> list[Turn]:
    """Return all runs: each round in the opposite order of the one before."""
    return [
        (number, case)
        for number in range(rounds)
        for case in (cases if number % 2 == 0 else reversed(cases))
    ]


class RunLines:
    """A line on the console for every run: what it is, and what came of it once it is over.

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


@dataclass(frozen=True, slots=True)
class Rounds(Generic[Result]):
    """The results of all runs, in their order."""

    runs: Sequence[tuple[Case, Result]]

    def of(self, case: Case) -> list[Result]:
        """Return the results of a case, in the order of the rounds."""
        return [result for of, result in self.runs if of == case]


def run_rounds(
    setup: Setup, turns: Sequence[Turn], measure: Measure[Result], console: Console
) -> Rounds[Result]:
    """Start a system for each turn and measure it."""
    lines = RunLines(console, len(turns))
    runs = []
    for turn in turns:
        _, case = turn
        lines.begin(case)
        with setup.start(case) as system:
            result, line = measure(system, turn)
        lines.end(line)
        runs.append((case, result))
    return Rounds(runs)
