"""Throughput: a closed loop that gives a system as much as its own back-pressure lets in.

A figure of a case is the median of its runs. The loop is closed: a document is due when the system
lets it in, so there is no latency to tell.
"""

from collections.abc import Sequence

from rich.console import Console

from driftline.bench.experiments.rounds import Rounds, Turn, in_turn, run_rounds
from driftline.bench.measuring.corpus import expected_outputs
from driftline.bench.measuring.loops import System, closed_loop
from driftline.bench.measuring.meter import Meter, ThroughputResult
from driftline.bench.report.rows import ThroughputRow
from driftline.bench.report.tables import Throughputs
from driftline.bench.systems.cases import Case
from driftline.bench.systems.setup import Setup, patience_s
from driftline.deploy.parties.window import WINDOW
from driftline.engine.policy import POLICIES, Output

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
    """Run all cases, `rounds` times in turn."""
    expected = expected_outputs(setup.documents)

    def measure(system: System, turn: Turn) -> tuple[ThroughputResult, str]:
        _, case = turn
        meter = Meter(expected[: documents_of(case)])
        result = closed_loop(system, meter, under_way(case), patience_s=patience_s(case))
        return result, f"{result.documents_per_s:,.0f} documents/s"

    return run_rounds(setup, in_turn(cases, rounds), measure, console)


def documents_of(case: Case) -> int | None:
    """How many documents a run takes at most."""
    return DOCUMENTS_MICRO_BATCH if case.micro_batch else None


def under_way(case: Case) -> int:
    """How many documents the meter lets be under way, so that it is not the meter that limits."""
    if case.is_floor:
        return UNDER_WAY_FLOOR
    if case.micro_batch:
        return UNDER_WAY
    return UNDER_WAY_COMMIT if POLICIES[case.policy].output is Output.COMMIT else UNDER_WAY


def throughputs_of(
    setup: Setup, cases: Sequence[Case], rounds: Rounds[ThroughputResult]
) -> Throughputs:
    """The throughput of all cases."""
    rows = [ThroughputRow(case, rounds.of(case), rounds.reasons.get(case)) for case in cases]
    return Throughputs(len(setup.documents), setup.nodes, rows)
