"""The command `driftline run`."""

from __future__ import annotations

import logging
from pathlib import Path

import click
from rich.console import Console

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.host.deaths import DEATHS_MAX
from driftline.deploy.host.heartbeat import SLOW_AFTER_S
from driftline.deploy.host.limits import Limits
from driftline.deploy.parties.front import WINDOW
from driftline.deploy.parties.master import STALLED_AFTER_S
from driftline.deploy.run.reference import run_reference_to
from driftline.deploy.run.run import RunConfig, run_flow
from driftline.engine.flow.loading import load_flow
from driftline.engine.policy import ORDERINGS, POLICIES, policy
from driftline.engine.sinks.lines import DEAD_LETTERS
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.sources.inputs import open_given_files, open_inputs
from driftline.engine.sources.record import Shape
from driftline.engine.ui.consoles import tell
from driftline.engine.ui.options import json_option, on_error_option, reading_options
from driftline.engine.ui.results import write_json


@click.command()
@click.argument("flow")
@click.option(
    "--input", "inputs", multiple=True, required=True, metavar="[SOURCE=]INPUT",
    help="What to read, any number of times; see above.",
)  # fmt: skip
@click.option(
    "--output", required=True, type=click.Path(path_type=Path, resolve_path=True), metavar="DIR",
    help="Directory for the outputs, one JSON object a line.",
)  # fmt: skip
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 64),
              help="Node processes.")  # fmt: skip
@click.option("--policy", "policy_name", default="exactly-once", show_default=True,
              type=click.Choice(list(POLICIES)), help="What is guaranteed.")  # fmt: skip
@click.option("--ordering", default="speculative", show_default=True,
              type=click.Choice(ORDERINGS), help="How label order is kept.")  # fmt: skip
@click.option("--checkpoint-ms", default=1000, show_default=True,
              type=click.IntRange(1, 3_600_000), help="Time between snapshots.")  # fmt: skip
@click.option("--state", type=click.Path(path_type=Path, resolve_path=True), metavar="DIR",
              help="Directory of snapshots and registry.  [default: OUTPUT/.driftline/state]",
              )  # fmt: skip
@on_error_option
@reading_options()
@click.option("--from-snapshot", "start", type=click.Path(path_type=Path), metavar="DIR",
              help="Begin from a savepoint, with the record at its time.")  # fmt: skip
@click.option("--window", default=WINDOW, show_default=True, type=click.IntRange(1),
              help="Records that may be under way.")  # fmt: skip
@click.option("--kill-every", type=click.FloatRange(0.1), metavar="S",
              help="Kill -9 a random node or the master every S seconds, to try it out.",
              )  # fmt: skip
@click.option("--missing-after", default=MISSING_AFTER_S, show_default=True, metavar="S",
              type=click.FloatRange(1),
              help="Seconds of silence after which a process counts as gone.")  # fmt: skip
@click.option("--stalled-after", default=STALLED_AFTER_S, show_default=True, metavar="S",
              type=click.FloatRange(1),
              help="Seconds that work may stay undone, with no node busy, until it counts as lost.",
              )  # fmt: skip
@click.option("--slow-after", default=SLOW_AFTER_S, show_default=True, metavar="S",
              type=click.FloatRange(0.1),
              help="Seconds that a function may take before that is told.")  # fmt: skip
@click.option("--deaths", default=DEATHS_MAX, show_default=True, type=click.IntRange(1),
              help="Deaths of a process, without the run getting any further, that end the run.",
              )  # fmt: skip
@click.option("--seed", default=0, help="Decides whom --kill-every kills.")
@click.option("--reference", is_flag=True,
              help="Use the reference interpreter: one process, no cluster.")  # fmt: skip
@json_option
def run(
    flow: str,
    inputs: tuple[str, ...],
    output: Path,
    nodes: int,
    policy_name: str,
    ordering: str,
    checkpoint_ms: int,
    state: Path | None,
    dead_letters: bool,
    shape: Shape,
    start: Path | None,
    window: int,
    kill_every: float | None,
    missing_after: float,
    stalled_after: float,
    slow_after: float,
    deaths: int,
    seed: int,
    reference: bool,
    json_file: Path | None,
) -> None:
    """Run FLOW over its inputs, and leave its outputs in a directory.

    FLOW is a module or a .py file, with :NAME for one of several flows, or for a function that
    returns one; `driftline.index` is the inverted index. An interrupted run goes on where it was
    when the same command is given again.

    An INPUT is a file (JSON lines, CSV, text, Wikimedia XML; .gz and .bz2 of these), a pattern
    such as 'logs/*.jsonl', or a directory, whose files of these formats are meant: in the order of
    their names, one after the other. SOURCE= says for which source of the flow it is. Without it,
    all are for the only source, or each for one, in the order of the sources. A file more is
    another input, which needs another --output.

    tcp://*:5555 is an address at which producers send records.

    - is standard input: JSON lines, or with -.txt lines of text. It is kept before it is used. If
    the run is interrupted, give the same command the same stream again, from its beginning: what
    was taken before is compared and passed over, so nothing is lost and nothing comes twice.
    """
    console = Console(stderr=True)
    logging.basicConfig(level=logging.WARNING, format="driftline: %(message)s")
    found = load_flow(flow)
    if reference:
        if start is not None:
            raise click.UsageError("--reference reads its inputs from their beginning")
        files = open_given_files(found, inputs, shape, "--reference")
        records = run_reference_to(found, files, output, dead_letters)
        report: dict[str, object] = {"records": records}
    else:
        config = RunConfig(
            flow,
            open_inputs(found, inputs, shape),
            output,
            nodes,
            policy(policy_name, ordering),
            checkpoint_ms / 1000,
            state or output / ".driftline" / "state",
            dead_letters,
            window,
            kill_every,
            seed,
            open_savepoint(start) if start is not None else None,
            Limits(missing_after, stalled_after, slow_after, deaths),
        )
        report = run_flow(found, config, console).as_json()
    write_json(json_file, report)
    tell(console, report)
    if start is not None and not report["records"]:
        console.print(
            f"driftline: nothing was read: the input has no record from the time of {start} on. A "
            "run from a savepoint goes on in the input that it was made of: append to that",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    if report.get("bad_records") or report.get("dead_letters"):
        console.print(
            f"driftline: what was set aside is in {output / DEAD_LETTERS}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
