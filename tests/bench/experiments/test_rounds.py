"""In every round each has its turn, and what is refused once is not tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO

import pytest
from rich.console import Console

from driftline.bench.experiments.rounds import Turn, back_and_forth, in_turn, run_rounds
from driftline.bench.measuring.loops import System
from driftline.bench.systems.cases import FLOOR, Case
from driftline.bench.systems.microbatch import Refused
from driftline.bench.systems.setup import Setup
from tests.bench.measuring.echo import Echo

BASE, NONE, OTHER = Case(FLOOR, None), Case("none", None), Case("exactly-once", 50)


def test_every_round_is_in_the_opposite_order_of_the_one_before() -> None:
    assert back_and_forth([BASE, NONE, OTHER], 1) == [(0, BASE), (0, NONE), (0, OTHER)]
    turns = back_and_forth([BASE, NONE, OTHER], 3)
    rounds = [[case for number, case in turns if number == i] for i in range(3)]
    assert rounds == [[BASE, NONE, OTHER], [OTHER, NONE, BASE], [BASE, NONE, OTHER]]


def test_every_round_is_in_the_same_order() -> None:
    assert in_turn([BASE, NONE], 2) == [(0, BASE), (0, NONE), (1, BASE), (1, NONE)]


@dataclass(frozen=True)
class Echoes(Setup):
    """Starts a system that answers at once, unless the case is to be refused."""

    refused: Case
    started: list[Case]

    @contextmanager
    def start(self, case: Case) -> Iterator[System]:
        self.started.append(case)
        if case == self.refused:
            raise Refused("no such trigger")
        yield Echo([["a"]])


def measured(system: System, turn: Turn) -> tuple[int, str]:
    number, _ = turn
    return number, f"round {number}"


def test_what_is_refused_is_started_once_and_has_a_reason() -> None:
    setup = Echoes([("d", "a")], 1, "speculative", refused=OTHER, started=[])
    out = StringIO()
    rounds = run_rounds(
        setup, in_turn([BASE, NONE, OTHER], 2), measured, Console(file=out, width=100)
    )
    assert setup.started == [BASE, NONE, OTHER, BASE, NONE]
    assert rounds.runs == [(BASE, 0), (NONE, 0), (BASE, 1), (NONE, 1)]
    assert (rounds.of(NONE), rounds.of(OTHER)) == ([0, 1], [])
    assert rounds.reasons == {OTHER: "no such trigger"}
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "1 of 6  floor: round 0",
        "2 of 6  none: round 0",
        "3 of 6  exactly-once, checkpoint every 50 ms: cannot be run",
        "4 of 6  floor: round 1",
        "5 of 6  none: round 1",
        "6 of 6  exactly-once, checkpoint every 50 ms: cannot be run",
    ]


def test_what_nobody_thought_of_ends_the_rounds() -> None:
    def broken(system: System, turn: Turn) -> tuple[int, str]:
        raise AssertionError("a mistake of ours")

    setup = Echoes([("d", "a")], 1, "speculative", refused=OTHER, started=[])
    with pytest.raises(AssertionError, match="a mistake of ours"):
        run_rounds(setup, in_turn([BASE, NONE], 2), broken, Console(file=StringIO()))
    assert setup.started == [BASE]
