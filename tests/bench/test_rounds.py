"""Every policy has a case for every interval that it has, and a turn in each round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import pytest
from rich.console import Console

from driftline.bench.experiments.rounds import (
    Setup,
    Turn,
    back_and_forth,
    run_rounds,
)
from driftline.bench.measuring.loops import System
from driftline.bench.systems.cases import CHOICES, FLOOR, MICRO_BATCH, Case, cases
from driftline.engine.policy import POLICIES
from tests.bench.echo import Echo

BASE, NONE, OTHER = Case(FLOOR, None), Case("none", None), Case("exactly-once", 50)


def test_every_round_is_in_the_opposite_order_of_the_one_before() -> None:
    assert back_and_forth([BASE, NONE, OTHER], 1) == [(0, BASE), (0, NONE), (0, OTHER)]
    turns = back_and_forth([BASE, NONE, OTHER], 3)
    rounds = [[case for number, case in turns if number == i] for i in range(3)]
    assert rounds == [[BASE, NONE, OTHER], [OTHER, NONE, BASE], [BASE, NONE, OTHER]]


class Echoes(Setup, frozen=True):
    """Starts a system that answers at once."""

    started: list[Case]

    @contextmanager
    def start(self, case: Case) -> Iterator[System]:
        self.started.append(case)
        yield Echo([["a"]])


def measured(system: System, turn: Turn) -> tuple[int, str]:
    number, _ = turn
    return number, f"round {number}"


def test_every_turn_has_a_line_and_a_result() -> None:
    setup = Echoes([("d", "a")], 1, started=[])
    out = StringIO()
    turns = back_and_forth([BASE, OTHER], 2)
    rounds = run_rounds(setup, turns, measured, Console(file=out, width=100))
    assert setup.started == [BASE, OTHER, OTHER, BASE]
    assert rounds.runs == [(BASE, 0), (OTHER, 0), (OTHER, 1), (BASE, 1)]
    assert rounds.results_of(OTHER) == [0, 1]
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "1 of 4  floor: round 0",
        "2 of 4  exactly-once, checkpoint every 50 ms: round 0",
        "3 of 4  exactly-once, checkpoint every 50 ms: round 1",
        "4 of 4  floor: round 1",
    ]


def test_an_error_ends_the_rounds() -> None:
    def broken(system: System, turn: Turn) -> tuple[int, str]:
        raise AssertionError("a mistake of ours")

    setup = Echoes([("d", "a")], 1, started=[])
    with pytest.raises(AssertionError, match="a mistake of ours"):
        run_rounds(setup, back_and_forth([BASE, NONE], 2), broken, Console(file=StringIO()))
    assert setup.started == [BASE]


def test_micro_batches_run_once_and_last() -> None:
    rows = cases(CHOICES, [50, 500])
    assert rows[-1] == Case(MICRO_BATCH, None)
    assert [row.is_micro_batch for row in rows].count(True) == 1
    assert {row.policy for row in rows} == {FLOOR, *POLICIES, MICRO_BATCH}


def test_policies_without_an_interval_run_once() -> None:
    assert cases(["exactly-once", "strong-productions", "none", "two-phase"], [50, 500]) == [
        Case(FLOOR, None),
        Case("strong-productions", None),
        Case("none", None),
        Case("exactly-once", 50),
        Case("two-phase", 50),
        Case("exactly-once", 500),
        Case("two-phase", 500),
    ]


def test_durable_rows_repeat_the_policies_with_their_own_floor() -> None:
    rows = cases(["none", "exactly-once", MICRO_BATCH], [50, 500], durable_ms=500)
    assert [row for row in rows if row.durable] == [
        Case(FLOOR, None, durable=True),
        Case("none", None, durable=True),
        Case("exactly-once", 500, durable=True),
    ]


def test_case_lists_its_durable_parts() -> None:
    assert Case(FLOOR, None).durable_parts == Case("none", None).durable_parts == []
    assert Case("two-phase", 50).durable_parts == Case(MICRO_BATCH, None).durable_parts == ["state"]
    assert Case("none", None, durable=True).durable_parts == ["inputs", "outputs"]
    assert Case("exactly-once", 50, durable=True).durable_parts == ["inputs", "state", "outputs"]
