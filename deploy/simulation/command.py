"""The command `driftline simulate`: thousands of seeds on all cores, or one seed in detail."""

from __future__ import annotations

import json
import logging
import os
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from time import monotonic

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from driftline.deploy.graph import as_text
from driftline.deploy.simulation.inputs import InputFiles
from driftline.deploy.simulation.report import Report, as_json, show
from driftline.deploy.simulation.scenario import DRAWN_FLOW, Scenario, scenario
from driftline.deploy.simulation.simulation import Outcome, Simulation
from driftline.engine.errors import FlowError, Unavailable
from driftline.engine.order.steps import FAILURES
from driftline.engine.policy import POLICIES
from driftline.engine.reference import run_reference

CHUNK = 20
"""Seeds that a process takes at a time."""


@click.command()
@click.argument("flow", required=False)
@click.option("--input", "inputs", multiple=True, metavar="[SOURCE=]INPUT",
              help="A file, a pattern or a directory to draw records from, as `run` takes them. "
              "[default: records are made up]")  # fmt: skip
@click.option("--id-field", metavar="NAME", help="Field that holds a record's id.")
@click.option("--text-field", metavar="NAME", help="Field that holds a record's text.")
@click.option("--sections", is_flag=True, help="Split wiki pages into their sections.")
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
    inputs: tuple[str, ...],
    id_field: str | None,
    text_field: str | None,
    sections: bool,
    every: bool,
    seeds: int,
    first: int,
    seed: int | None,
    policy: str | None,
    json_file: Path | None,
    trace: bool,
) -> None:
    """Run FLOW in a simulated cluster that fails in every way, and check every output.

    A seed decides how long messages take, who crashes where, which bits flip. FLOW, a module or .py
    file with :NAME if it holds several flows, is given records {"id", "key", "text"}, or some
    records of its inputs, drawn by the seed.
    """
    if (flow is None) != every:
        raise click.UsageError("give either a FLOW or --all")
    if inputs and flow is None:
        raise click.UsageError("--input is for a FLOW of yours")
    if trace and seed is None:
        raise click.UsageError("--trace needs --seed: it is long enough for one")
    files = InputFiles(inputs, id_field, text_field, sections) if inputs else None
    began = monotonic()
    try:
        what = scenario(first if seed is None else seed, flow, policy, files)
        _check_flow(what)
        if seed is None:
            report = run_all(range(first, first + seeds), flow, policy, files)
        else:
            report = Report()
            report.note(run_one(what, trace))
    except FlowError as error:
        raise click.UsageError(str(error)) from None
    took = monotonic() - began
    show(report, took)
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(report, took)) + "\n")
    if report.failures:
        click.get_current_context().exit(1)


def run_all(
    seeds: range, flow: str | None, policy: str | None, files: InputFiles | None = None
) -> Report:
    """Run seeds on all cores. Raises Unavailable if a process dies."""
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    report = Report()
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(chunks))) as pool:
        runs = {pool.submit(run_chunk, chunk, flow, policy, files): chunk for chunk in chunks}
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


def run_chunk(
    seeds: range, flow: str | None, policy: str | None, files: InputFiles | None = None
) -> Report:
    """Run seeds one after the other."""
    report = Report()
    for seed in seeds:
        report.note(run_one(scenario(seed, flow, policy, files)))
    return report


def run_one(what: Scenario, trace: bool = False) -> Outcome:
    """Run one seed; a crash of our own code is a failure like others."""
    log = logging.getLogger("driftline")
    if trace:
        click.echo(what)
        logging.basicConfig(format="             %(message)s", level=logging.INFO)
    before = log.disabled
    log.disabled = not trace
    simulation = Simulation(what, click.echo if trace else None)
    if trace:
        click.echo(as_text(simulation.flow))
    try:
        outcome = simulation.run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        outcome = Outcome(what, problem, simulation.counted, simulation.timeline.now)
    finally:
        log.disabled = before
    if outcome.problem and what.flow == DRAWN_FLOW:
        outcome.flow = as_text(simulation.flow)
    return outcome


def _check_flow(what: Scenario) -> None:
    """Raises FlowError for a flow that cannot be loaded, or can do nothing with our records."""
    simulation = Simulation(what)
    items = list(run_reference(simulation.flow, simulation.inputs, dead_letters=True))
    if items and all(item.sink == FAILURES for item in items):
        assert isinstance(items[0].value, tuple)
        raise FlowError(
            f"{what.flow.spec} fails on every record of the simulation: {items[0].value[3]}. Its "
            f"records look like {simulation.inputs[0][0]}; --input FILE gives it others"
        )
