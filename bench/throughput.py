"""Throughput: a closed loop that gives a system as much as its own back-pressure lets in.

A machine drifts within minutes, so the floor and all cases take turns, several rounds of them.
A figure is the median over the rounds; a share of the floor is the median of the shares within
each round, where both ran within the same half-minute.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median

from rich import box
from rich.table import Table

from driftline.bench.cases import Case, Progress, Setup, patience_s
from driftline.bench.floor import expected_records
from driftline.bench.meter import Meter, ThroughputResult, closed_loop
from driftline.bench.microbatch import Refused
from driftline.bench.report import ThroughputRow, Throughputs
from driftline.deploy.parties.front import WINDOW
from driftline.engine.policy import POLICIES, Output

UNDER_WAY = 4 * WINDOW
"""Documents that the meter lets be under way: more than the front's window, which has to bind."""

UNDER_WAY_COMMIT = 100_000
"""The same where outputs wait for their epoch: all documents of some epochs are under way."""

UNDER_WAY_FLOOR = 512
"""The floor has no back-pressure of its own; more only makes its queues longer."""

DOCUMENTS_MICRO_BATCH = 600
"""Documents of a run of micro-batches at most: six full batches, which take long enough."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The results of every round, in order; None is the floor."""

    setup: Setup
    results: Mapping[Case | None, Sequence[ThroughputResult]]
    reasons: Mapping[Case | None, str]
    """Why there are no results of a case."""

    @property
    def cases(self) -> list[Case]:
        """All but the floor."""
        return [case for case in self.results if case is not None]

    def throughputs(self) -> Throughputs:
        """The medians."""
        return Throughputs(
            len(self.setup.documents),
            self.setup.nodes,
            median_of(self.results[None]),
            [
                ThroughputRow.of(
                    case.policy,
                    case.checkpoint_ms,
                    median_of(self.results[case]),
                    self.reasons.get(case),
                )
                for case in self.cases
            ],
        )

    def of_floor(self, case: Case) -> float:
        """Which share of the floor's documents a second a case makes."""
        pairs = zip(self.results[case], self.results[None], strict=True)
        return median(mine.documents_per_s / floor.documents_per_s for mine, floor in pairs)

    def spread(self) -> Table:
        """How far the rounds lie apart, for a terminal."""
        table = Table(
            title=f"Documents a second, over {len(self.results[None])} rounds",
            box=box.SIMPLE_HEAD,
            title_justify="left",
        )
        table.add_column("")
        for name in ("min", "median", "max", "of floor"):
            table.add_column(name, justify="right")
        for case, results in self.results.items():
            if not results:
                continue
            rates = sorted(result.documents_per_s for result in results)
            figures = [f"{rate:,.0f}" for rate in (rates[0], median(rates), rates[-1])]
            share = "" if case is None else f"{self.of_floor(case):.0%}"
            table.add_row("floor" if case is None else str(case), *figures, share)
        return table


def measure_throughput(
    setup: Setup, cases: Sequence[Case], rounds: int, progress: Progress
) -> Rounds:
    """Run the floor and all cases, `rounds` times in turn."""
    expected = expected_records(setup.documents)
    results: dict[Case | None, list[ThroughputResult]] = {case: [] for case in (None, *cases)}
    reasons: dict[Case | None, str] = {}
    for _ in range(rounds):
        for case, found in results.items():
            progress.begin("floor" if case is None else case)
            if case in reasons:
                progress.end("cannot be run")
                continue
            meter = Meter(expected[: documents_of(case)])
            try:
                with setup.start(case) as system:
                    result = closed_loop(
                        system, meter, under_way(case), patience_s=patience_s(case)
                    )
            except Refused as error:
                reasons[case] = str(error)
                progress.end("cannot be run")
                continue
            found.append(result)
            progress.end(f"{result.documents_per_s:,.0f} documents/s")
    return Rounds(setup, results, reasons)


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
