"""The command `driftline simulate`: thousands of seeds on all cores, or one seed in detail."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from deploy.simulation.scenario import Scenario, scenario
from deploy.simulation.simulation import Outcome, Simulation
from engine.errors import FlowError, Unavailable
from engine.operators import FAILURES
from engine.policy import POLICIES
from engine.reference import run_reference

CHUNK = 20
"""Seeds that a process takes at a time."""

SHOWN_MAX = 10
"""Failures that are shown; the JSON file has all."""


@dataclass(slots=True)
class Report:
    """What came of some seeds. `failures`: (command that repeats it, what is wrong)."""

    seeds: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    def note(self, outcome: Outcome) -> None:
        """Add one seed."""
        self.seeds += 1
        self.counted += outcome.counted
        self.virtual_s += outcome.virtual_s
        if outcome.problem:
            self.failures.append((outcome.scenario.command, outcome.problem))

    def add(self, other: Report) -> None:
        """Add other seeds."""
        self.seeds += other.seeds
        self.failures += other.failures
        self.counted += other.counted
        self.virtual_s += other.virtual_s


@click.command()
@click.argument("flow", required=False)
@click.option("--all", "every", is_flag=True, help="The flows of the test suite instead of FLOW.")
@click.option("--seeds", default=200, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--seed", type=int, help="Only this seed.")
@click.option("--policy", type=click.Choice(list(POLICIES)), help="[default: drawn by the seed]")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the result, for machines.")  # fmt: skip
@click.option("--trace", is_flag=True, help="With --seed: print everything that happens.")
def simulate(
    flow: str | None,
    every: bool,
    seeds: int,
    first: int,
    seed: int | None,
    policy: str | None,
    json_file: Path | None,
    trace: bool,
) -> None:
    """Run FLOW in a simulated cluster that fails in every way, and check every output.

    A seed decides how long messages take, who crashes where, which disk writes tear. FLOW, a module
    or .py file with :NAME if it holds several flows, is given records {"id", "key", "text"}.
    """
    if (flow is None) != every:
        raise click.UsageError("give either a FLOW or --all")
    if trace and seed is None:
        raise click.UsageError("--trace needs --seed: it is long enough for one")
    began = monotonic()
    try:
        what = scenario(first if seed is None else seed, flow, policy)
        _check_flow(what)
        if seed is None:
            report = run_all(range(first, first + seeds), flow, policy)
        else:
            report = Report()
            report.note(run_one(what, trace))
    except FlowError as error:
        raise click.UsageError(str(error)) from None
    took = monotonic() - began
    _show(report, took)
    if json_file is not None:
        json_file.write_text(json.dumps(_as_json(report, took)) + "\n")
    if report.failures:
        click.get_current_context().exit(1)


def run_all(seeds: range, flow: str | None, policy: str | None) -> Report:
    """Run seeds on all cores. Raises Unavailable if a process dies."""
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    report = Report()
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(chunks))) as pool:
        runs = {pool.submit(run_chunk, chunk, flow, policy): chunk for chunk in chunks}
        try:
            with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
                task = progress.add_task("", total=len(seeds))
                for run in as_completed(runs):
                    report.add(run.result())
                    progress.advance(task, len(runs[run]))
        except BrokenProcessPool:
            raise Unavailable("a process of the simulation died: is there enough memory?") from None
        finally:
            pool.shutdown(cancel_futures=True)
    report.failures.sort()
    return report


def run_chunk(seeds: range, flow: str | None, policy: str | None) -> Report:
    """Run seeds one after the other."""
    report = Report()
    for seed in seeds:
        report.note(run_one(scenario(seed, flow, policy)))
    return report


def run_one(what: Scenario, trace: bool = False) -> Outcome:
    """Run one seed; a crash of our own code is a failure like others."""
    log = logging.getLogger("driftline")
    if trace:
        click.echo(str(what))
        logging.basicConfig(format="             %(message)s", level=logging.INFO)
    before = log.disabled
    log.disabled = not trace
    simulation = Simulation(what, click.echo if trace else None)
    try:
        return simulation.run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        return Outcome(what, problem, simulation.counted, simulation.timeline.now)
    finally:
        log.disabled = before


def _check_flow(what: Scenario) -> None:
    """Raises FlowError for a flow that cannot be loaded, or can do nothing with our records."""
    simulation = Simulation(what)
    items = list(run_reference(simulation.plan.flow, simulation.inputs, dead_letters=True))
    if items and all(item.sink == FAILURES for item in items):
        assert isinstance(items[0].value, tuple)
        raise FlowError(
            f"{what.flow.spec} fails on every record of the simulation: {items[0].value[3]}. Its "
            f"records look like {simulation.inputs[0][0]}"
        )


def _show(report: Report, took_s: float) -> None:
    console = Console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for number, what in (
        (str(report.seeds), "seeds"),
        (str(len(report.failures)), "failures"),
        (f"{report.virtual_s:.1f}", "virtual seconds"),
        (f"{report.seeds / took_s:.1f}", "seeds a second"),
        *((str(count), what) for what, count in sorted(report.counted.items())),
    ):
        table.add_row(number, what)
    console.print(table)
    for command, problem in report.failures[:SHOWN_MAX]:
        console.print(f"\n[red]failed[/]: {command}", highlight=False, soft_wrap=True)
        console.print(f"  {problem}", highlight=False, markup=False, soft_wrap=True)
    if len(report.failures) > SHOWN_MAX:
        console.print(f"\nand {len(report.failures) - SHOWN_MAX} more failures")


def _as_json(report: Report, took_s: float) -> dict[str, object]:
    return {
        "seeds": report.seeds,
        "failures": [{"command": c, "problem": p} for c, p in report.failures],
        "virtual_s": round(report.virtual_s, 3),
        "seconds": round(took_s, 3),
        "counted": dict(sorted(report.counted.items())),
    }
