"""Rounds: all cases take turns, several times.

A machine drifts within minutes. In turns, what is compared was measured at about the same time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rich.console import Console

from driftline.bench.measuring.loops import System
from driftline.bench.systems.cases import Case
from driftline.bench.systems.microbatch import Refused
from driftline.bench.systems.setup import Setup

Result = TypeVar("Result")

Turn = tuple[int, Case]
"""A round, from 0 on, and what is run in it."""

Measure = Callable[[System, Turn], tuple[Result, str]]
"""Measures a system that has been started: the result, and what a line says of it."""


def in_turn(cases: Sequence[Case], rounds: int) -> list[Turn]:
    """All runs, round by round."""
    return [(number, case) for number in range(rounds) for case in cases]


def back_and_forth(cases: Sequence[Case], rounds: int) -> list[Turn]:
    """All runs: each round in the opposite order of the one before."""
    turns: list[Turn] = []
    for number in range(rounds):
        this_round = in_turn(cases, 1)
        for _, case in this_round if number % 2 == 0 else reversed(this_round):
            turns.append((number, case))
    return turns


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


@dataclass(slots=True)
class Rounds(Generic[Result]):
    """What the runs have given."""

    runs: list[tuple[Case, Result]] = field(default_factory=list)
    """In the order of the runs."""
    reasons: dict[Case, str] = field(default_factory=dict)
    """Why there is no run of a case."""

    def of(self, case: Case) -> list[Result]:
        """The results of a case, in the order of the rounds."""
        return [result for of, result in self.runs if of == case]

    def run(self, setup: Setup, turn: Turn, measure: Measure[Result]) -> str:
        """Take one turn, and say what came of it."""
        _, case = turn
        try:
            with setup.start(case) as system:
                result, told = measure(system, turn)
        except Refused as error:
            self.reasons[case] = str(error)
            return "cannot be run"
        self.runs.append((case, result))
        return told


def run_rounds(
    setup: Setup, turns: Sequence[Turn], measure: Measure[Result], console: Console
) -> Rounds[Result]:
    """Start a system for each turn and measure it. A case that is refused once is not run again."""
    rounds: Rounds[Result] = Rounds()
    lines = RunLines(console, len(turns))
    for turn in turns:
        _, case = turn
        lines.begin(case)
        lines.end("cannot be run" if case in rounds.reasons else rounds.run(setup, turn, measure))
    return rounds
