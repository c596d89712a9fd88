"""Throughput: a closed loop that gives a system as much as its own back-pressure lets in.

A figure is the median over the rounds; a share of the floor is the median of the shares within
each round, where both ran within the same half-minute.
"""

from collections.abc import Iterable, Sequence
from math import nan
from statistics import median

from rich.console import Console
from rich.table import Table

from driftline.bench.experiments.rounds import Rounds, Turn, in_turn, run_rounds
from driftline.bench.measuring.corpus import expected_records
from driftline.bench.measuring.loops import System, closed_loop
from driftline.bench.measuring.meter import Meter, ThroughputResult
from driftline.bench.report.tables import ThroughputRow, Throughputs
from driftline.bench.systems.cases import Case
from driftline.bench.systems.setup import Setup, patience_s
from driftline.deploy.parties.window import WINDOW
from driftline.engine.policy import POLICIES, Output
from driftline.engine.ui.consoles import new_table

UNDER_WAY = 4 * WINDOW
"""Documents that the meter lets be under way: more than the front's window, which has to bind."""

UNDER_WAY_COMMIT = 100_000
"""The same where outputs wait for their epoch: all documents of some epochs are under way."""

UNDER_WAY_FLOOR = 512
"""The floor has no back-pressure of its own; more only makes its queues longer."""

DOCUMENTS_MICRO_BATCH = 600
"""Documents of a run of micro-batches at most: six full batches, which take long enough."""


def measure_throughput(
    setup: Setup, cases: Sequence[Case], rounds: int, console: Console
) -> Rounds[ThroughputResult]:
    """Run the floor and all cases, `rounds` times in turn."""
    expected = expected_records(setup.documents)

    def measure(system: System, turn: Turn) -> tuple[ThroughputResult, str]:
        _, case = turn
        meter = Meter(expected[: documents_of(case)])
        result = closed_loop(system, meter, under_way(case), patience_s=patience_s(case))
        return result, f"{result.documents_per_s:,.0f} documents/s"

    return run_rounds(setup, in_turn(cases, rounds), measure, console)


def documents_of(case: Case | None) -> int | None:
    """How many documents a run takes at most."""
    return DOCUMENTS_MICRO_BATCH if case is not None and case.micro_batch else None


def under_way(case: Case | None) -> int:
    """How many documents the meter lets be under way, so that it is not the meter that limits."""
    if case is None:
        return UNDER_WAY_FLOOR
    if case.micro_batch:
        return UNDER_WAY
    return UNDER_WAY_COMMIT if POLICIES[case.policy].output is Output.COMMIT else UNDER_WAY


def throughputs_of(
    setup: Setup, cases: Sequence[Case], rounds: Rounds[ThroughputResult]
) -> Throughputs:
    """The medians of the floor and of all cases."""
    rows = [
        ThroughputRow.of(
            case.policy, case.checkpoint_ms, median_of(rounds.of(case)), rounds.reasons.get(case)
        )
        for case in cases
    ]
    return Throughputs(len(setup.documents), setup.nodes, median_of(rounds.of(None)), rows)


def median_of(results: Sequence[ThroughputResult]) -> ThroughputResult:
    """The median of every figure (NaN of none); what was lost and duplicated is added up."""

    def of(figures: Iterable[float]) -> float:
        return median([*figures] or [nan])

    return ThroughputResult(
        documents_per_s=of(result.documents_per_s for result in results),
        records_per_s=of(result.records_per_s for result in results),
        cpu_cores=of(result.cpu_cores for result in results),
        lost=sum(result.lost for result in results),
        duplicated=sum(result.duplicated for result in results),
    )


def spread(cases: Sequence[Case], rounds: Rounds[ThroughputResult]) -> Table:
    """How far the rounds of what could be run lie apart, for a terminal."""
    table = new_table(
        f"Documents a second, over {len(rounds.of(None))} rounds",
        [""],
        ["min", "median", "max", "of floor"],
    )
    for case in (None, *cases):
        if case in rounds.reasons:
            continue
        rates = sorted(result.documents_per_s for result in rounds.of(case))
        figures = [f"{rate:,.0f}" for rate in (rates[0], median(rates), rates[-1])]
        share = "" if case is None else f"{share_of_floor(case, rounds):.0%}"
        table.add_row("floor" if case is None else str(case), *figures, share)
    return table


def share_of_floor(case: Case, rounds: Rounds[ThroughputResult]) -> float:
    """Which share of the floor's documents a second a case makes."""
    pairs = zip(rounds.of(case), rounds.of(None), strict=True)
    return median(mine.documents_per_s / floor.documents_per_s for mine, floor in pairs)
