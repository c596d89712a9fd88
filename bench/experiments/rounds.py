"""Rounds: all cases run in turn, several times.

A machine's speed drifts within minutes. In a round, all compared cases are measured at about the
same time.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from msgspec import Struct
from rich.console import Console

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.loops import System
from driftline.bench.systems.cases import Case
from driftline.bench.systems.engine import DurableEngine, Engine
from driftline.bench.systems.floor import DurableFloor, MemoryFloor
from driftline.bench.systems.microbatch import MicroBatch

Result = TypeVar("Result")

ScheduledRun = tuple[int, Case]
"""(number of the round, from 0 on; case to run in the round)."""


class Setup(Struct, frozen=True):
    """The settings that all cases of a comparison share."""

    documents: Documents
    nodes: int

    def start(self, case: Case) -> AbstractContextManager[System]:
        """Return a new system for a case; its context starts the system and warms it up."""
        if case.is_floor:
            return (DurableFloor if case.durable else MemoryFloor)(self.documents, self.nodes)
        if case.is_micro_batch:
            return MicroBatch(self.documents, self.nodes)
        return (DurableEngine if case.durable else Engine)(
            self.documents,
            case.policy,
            nodes=self.nodes,
            snapshot_interval_s=(case.snapshot_interval_ms or 1000) / 1000,
        )


Measure = Callable[[System, ScheduledRun], tuple[Result, str]]
"""Function that measures a started system; returns the result and its line for the console."""


def alternating_order(cases: Sequence[Case], rounds: int) -> list[ScheduledRun]:
    """Return the runs of all rounds; each round reverses the order of the previous one."""
    return [
        (number, case)
        for number in range(rounds)
        for case in (cases if number % 2 == 0 else reversed(cases))
    ]


class RunLines:
    """Console output with one line per run: the name of the run, then its result.

    Nothing is printed during a run, since printing would disturb the measurement.
    """

    def __init__(self, console: Console, runs: int) -> None:
        self.console = console
        self.runs = runs
        self.run_number = 0

    def begin(self, what: object) -> None:
        """Print the start of the next run's line."""
        self.run_number += 1
        self.console.print(
            f"{self.run_number:>3} of {self.runs}  {what}: ", end="", highlight=False
        )

    def end(self, result: str) -> None:
        """Print the result of the run and end its line."""
        self.console.print(result, highlight=False)


class Rounds(Struct, Generic[Result], frozen=True):
    """Results of all runs, in the order of the runs."""

    runs: Sequence[tuple[Case, Result]]

    def results_of(self, case: Case) -> list[Result]:
        """Return the results of a case, in the order of the rounds."""
        return [result for run_case, result in self.runs if run_case == case]


def run_rounds(
    setup: Setup, schedule: Sequence[ScheduledRun], measure: Measure[Result], console: Console
) -> Rounds[Result]:
    """Start a new system for each run and measure the system."""
    lines = RunLines(console, len(schedule))
    runs = []
    for scheduled_run in schedule:
        _, case = scheduled_run
        lines.begin(case)
        with setup.start(case) as system:
            result, line = measure(system, scheduled_run)
        lines.end(line)
        runs.append((case, result))
    return Rounds(runs)
