"""Runs the scenarios of seeds, and reports the outcomes: a table for people, JSON for programs."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct, field
from rich.console import Console
from rich.table import Table

from driftline.deploy.graph import as_text
from driftline.engine.errors import FlowError
from driftline.engine.operators.context import parts
from driftline.engine.operators.steps import FAILURES
from driftline.engine.reference import run_reference
from driftline.engine.texts import counted, escape_lines
from driftline.simulation.scenarios.inputs import Inputs
from driftline.simulation.scenarios.scenario import DRAWN_FLOW, Scenario, draw_scenario
from driftline.simulation.simulation import Outcome, Simulation

FAULTS = (
    "bit flip",
    "crash",
    "cut connection",
    "failed",
    "failure reported although done",
    "hang",
    "lost message",
    "message after its sender's death",
    "one-way partition",
    "pause",
    "power failure",
    "producer that breaks the protocol",
    "repeated message",
    "slow turn",
)
"""Prefixes of the names of faults; other counted events are not faults."""

PASSING = (
    "A seed passes if the outputs are those of a run without faults, or if injected damage stops "
    "the run."
)

SHOWN_MAX = 10
"""Number of failures printed; the JSON file has all."""


class SeedReport(Struct):
    """Outcomes of some seeds. `failures`: (command that repeats the seed, problem); `counted`: kind
    of event -> how often it happened."""

    seeds: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    @property
    def faults(self) -> dict[str, int]:
        """Number of occurrences of each fault."""
        return {name: n for name, n in sorted(self.counted.items()) if name.startswith(FAULTS)}

    def add_outcome(self, outcome: Outcome) -> None:
        """Add the outcome of one seed."""
        self.seeds += 1
        self.counted += outcome.counted
        self.virtual_s += outcome.virtual_s
        if outcome.problem:
            flow = f"\n{outcome.flow}" if outcome.flow else ""
            self.failures.append((outcome.scenario.command, outcome.problem + flow))

    def merge(self, other: SeedReport) -> None:
        """Add the outcomes of other seeds."""
        self.seeds += other.seeds
        self.failures += other.failures
        self.counted += other.counted
        self.virtual_s += other.virtual_s


def show(report: SeedReport, took_s: float) -> None:
    """Print a report; `took_s`: real seconds."""
    console = Console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="bold")
    table.add_column()
    faults = report.faults
    events = {name: n for name, n in sorted(report.counted.items()) if name not in faults}
    for title, counts in ("injected faults", faults), ("other events", events):
        table.add_row("", f"[bold]{title}")
        for name, count in counts.items():
            table.add_row(f"{count:,}", name)
    console.print(table)
    for command, problem in report.failures[:SHOWN_MAX]:
        console.print(f"\n[red]failed[/]: {command}", highlight=False, soft_wrap=True)
        console.print(f"  {escape_lines(problem)}", highlight=False, markup=False, soft_wrap=True)
    if len(report.failures) > SHOWN_MAX:
        console.print(f"\nand {len(report.failures) - SHOWN_MAX} more failures")
    failed = f"{len(report.failures)} of " if report.failures else ""
    verdict = "failed" if report.failures else "passed"
    seeds = f"{failed}{counted(report.seeds, 'seed')} {verdict}"
    seconds = f"{report.virtual_s:,.0f} simulated seconds in {took_s:,.0f} seconds"
    console.print(f"\n{seeds}: {seconds}. {PASSING}", highlight=False)


def as_json(report: SeedReport, took_s: float) -> dict[str, object]:
    """Return the report as a JSON object; `took_s`: real seconds."""
    return {
        "seeds": report.seeds,
        "failures": [{"command": c, "problem": p} for c, p in report.failures],
        "virtual_s": round(report.virtual_s, 3),
        "seconds": round(took_s, 3),
        "counted": dict(sorted(report.counted.items())),
    }


def run_seeds(
    seeds: Iterable[int], flow: str | None, policy: str | None, files: Inputs | None = None
) -> SeedReport:
    """Run seeds one after the other.

    If `flow` or `policy` is None, each seed decides it. `files`: the user's records; if it is None,
    records are generated.
    """
    report = SeedReport()
    for seed in seeds:
        report.add_outcome(run_one(draw_scenario(seed, flow, policy, files)))
    return report


def run_one(scenario: Scenario, trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed. An unexpected exception is a failure of the seed.

    `trace`: called with each line of the trace; None: no trace.
    """
    log = logging.getLogger("driftline")
    if trace is not None:
        trace(str(scenario))
        logging.basicConfig(format="             %(message)s", level=logging.INFO)
    was_disabled = log.disabled
    log.disabled = trace is None
    simulation = Simulation(scenario, trace)
    if trace is not None:
        trace(as_text(simulation.flow))
    try:
        outcome = simulation.run()
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
        outcome = Outcome(scenario, problem, simulation.counted, simulation.timeline.now)
    finally:
        log.disabled = was_disabled
    if outcome.problem and scenario.flow == DRAWN_FLOW:
        outcome.flow = as_text(simulation.flow)
    return outcome


def check_flow(scenario: Scenario, advice: str) -> str:
    """Try a flow with the reference interpreter. Return a note on elements whose function raises.

    The note is "" if there are no such elements. `advice`: how to give the flow other records, for
    the end of the error text. Raises FlowError for a flow that cannot be loaded, or that has no
    outputs except failures.
    """
    simulation = Simulation(scenario)
    items = list(run_reference(simulation.flow, simulation.inputs, dead_letters=True))
    failures = [item for item in items if item.sink == FAILURES]
    if not failures:
        return ""
    operator, _, _, error, _, _ = parts(failures[0].value)
    if len(failures) == len(items):
        raise FlowError(
            f"{scenario.flow.spec} has no outputs in the simulation, as functions raise: {error}. "
            f"The records of the simulation look like {simulation.inputs[0][0]}; {advice}"
        )
    return (
        f"with the first seed {len(failures)} elements fail, the first in operator {operator!r}: "
        f"{error}. Simulated runs write them to the dead letters; `driftline run` stops, unless "
        "--on-error dead-letter is given"
    )
