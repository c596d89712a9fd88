"""The command `driftline simulate`: thousands of seeds on all cores, or one seed in detail."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from time import monotonic

import click
from rich.console import Console

from driftline.engine.errors import FlowError, InputError, Unavailable, advice_for
from driftline.engine.policy import POLICIES
from driftline.engine.sources.record import RecordFormat
from driftline.engine.texts import print_note
from driftline.engine.ui.consoles import bars
from driftline.engine.ui.options import (
    FORMAT_OPTIONS,
    json_option,
    on_error_option,
    reading_options,
    refuse_options,
)
from driftline.engine.ui.results import write_json
from driftline.simulation.scenarios.inputs import InputFiles
from driftline.simulation.scenarios.scenario import draw_scenario
from driftline.simulation.seeds import SeedReport, as_json, check_flow, run_one, run_seeds, show

SEEDS_PER_TASK = 20
"""Number of seeds per task of the process pool."""

BAD_RECORD_ADVICE = "Fix it, or leave such records out: --on-error dead-letter."
"""Advice that ends the error about a bad record."""


@click.command()
@click.argument("flow", required=False)
@click.option("--input", "inputs", multiple=True, metavar="[SOURCE=]INPUT",
              help="A file, a pattern or a directory to draw records from, as for `run`. "
              "[default: generated records]")  # fmt: skip
@on_error_option(
    "On a malformed record of the inputs: stop the command, or leave the record out. An element "
    "whose function raises is always a dead letter."
)
@reading_options()
@click.option("--all", "all_flows", is_flag=True,
              help="Simulate the flows of the test suite instead of FLOW.")  # fmt: skip
@click.option(
    "--seeds",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Number of seeds to run.",
)
@click.option("--first", default=1, show_default=True, help="First seed to run.")
@click.option("--seed", type=int, help="Run only this seed.")
@click.option("--policy", type=click.Choice(list(POLICIES)),
              help="Policy of all runs.  [default: drawn by the seed]")  # fmt: skip
@json_option
@click.option("--trace", is_flag=True, help="With --seed: print everything that happens.")
def simulate(
    flow: str | None,
    inputs: tuple[str, ...],
    dead_letters: bool,
    record_format: RecordFormat,
    all_flows: bool,
    seeds: int,
    first: int,
    seed: int | None,
    policy: str | None,
    json_file: Path | None,
    trace: bool,
) -> None:
    """Run FLOW in a simulated cluster with injected faults, and check every output.

    The simulation is deterministic: a seed decides how long messages take, which process crashes
    where, and which bits flip. FLOW is a module or a .py file, with :NAME for one of several flows,
    or for a function that returns one. Without --input, its records are generated, as {"id", "key",
    "text"}; with it, the seed draws them from the inputs.
    """
    if (flow is None) != all_flows:
        raise click.UsageError("give either a FLOW or --all")
    if inputs and flow is None:
        raise click.UsageError("--input needs a FLOW: the flows of --all have generated records")
    if trace and seed is None:
        raise click.UsageError("--trace needs --seed: only one seed can be traced")
    if not inputs:
        refuse_options(["--on-error", *FORMAT_OPTIONS], "without --input: records are generated")
    if seed is not None:
        refuse_options(["--seeds", "--first"], "with --seed, which runs one seed")
    files = InputFiles(inputs, record_format, dead_letters) if inputs else None
    began = monotonic()
    try:
        first_scenario = draw_scenario(first if seed is None else seed, flow, policy, files)
        advice = (
            "give other records by --input" if files else "--input FILE draws records from a file"
        )
        note = check_flow(first_scenario, advice)
        if note and flow is not None:
            print_note(note)
        if files is not None:
            for bad_record_note in files.bad_record_notes:
                print_note(bad_record_note)
        if seed is None:
            report = run_on_all_cores(range(first, first + seeds), flow, policy, files)
        else:
            report = SeedReport()
            report.add_outcome(run_one(first_scenario, click.echo if trace else None))
    except FlowError as error:
        raise click.UsageError(str(error)) from None
    except InputError as error:
        raise InputError.from_text(f"{error}{advice_for(str(error), BAD_RECORD_ADVICE)}") from None
    took_s = monotonic() - began
    show(report, took_s)
    write_json(json_file, as_json(report, took_s))
    if report.failures:
        click.get_current_context().exit(1)


def run_on_all_cores(
    seeds: range, flow: str | None, policy: str | None, files: InputFiles | None = None
) -> SeedReport:
    """Run seeds on all cores.

    If `flow` or `policy` is None, each seed decides it; if `files` is None, records are generated.
    Raises Unavailable if a process dies.
    """
    batches = [seeds[i : i + SEEDS_PER_TASK] for i in range(0, len(seeds), SEEDS_PER_TASK)]
    report = SeedReport()
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(batches))) as pool:
        runs = {pool.submit(run_seeds, batch, flow, policy, files): batch for batch in batches}
        try:
            with bars(Console(stderr=True), "seeds") as progress:
                task = progress.add_task("", total=len(seeds))
                for run in as_completed(runs):
                    report.merge(run.result())
                    progress.advance(task, len(runs[run]))
        except BrokenProcessPool:
            text = "a process of the simulation died, perhaps because memory ran out"
            raise Unavailable(f"{text}: free some memory, and run the command again") from None
        finally:
            pool.shutdown(cancel_futures=True)
    report.failures.sort()
    return report
