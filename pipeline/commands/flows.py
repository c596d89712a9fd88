"""The Spark commands for flows: run a flow, audit its outputs."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import click

from driftline.engine.errors import DriftlineError
from driftline.engine.flow.loading import load_flow
from driftline.engine.labels import INFINITY
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.sources.inputs import open_given_files
from driftline.engine.sources.record import Shape
from driftline.engine.ui.consoles import tell
from driftline.engine.ui.options import (
    flow_argument,
    inputs_option,
    json_option,
    on_error_option,
    output_option,
    reading_options,
)
from driftline.engine.ui.results import write_json
from driftline.engine.visible import complain
from driftline.pipeline.audit.found import shares_of
from driftline.pipeline.commands.options import (
    Sessions,
    on_spark,
    partitions_option,
)

INPUTS = (
    "A file, a pattern or a directory as for `driftline run`, or zipf:N for N generated documents. "
    "Any number of times."
)


@click.command()
@flow_argument
@inputs_option(INPUTS)
@output_option("Directory for the outputs, one JSON object a line.")
@click.option("--until", type=click.IntRange(0), metavar="N",
              help="Only records before number N (their time).")  # fmt: skip
@click.option("--from-snapshot", "start", type=click.Path(path_type=Path), metavar="DIR",
              help="Begin at the time of a savepoint, with its state.")  # fmt: skip
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR",
              help="Write the state at the end as a savepoint: nodes can go on from it.",
              )  # fmt: skip
@partitions_option
@on_error_option()
@reading_options()
@json_option
@on_spark
def run(
    sessions: Sessions,
    flow: str,
    inputs: tuple[str, ...],
    output: Path,
    until: int | None,
    start: Path | None,
    save: Path | None,
    partitions: int,
    dead_letters: bool,
    shape: Shape,
    json_file: Path | None,
) -> None:
    """Run FLOW over files as a Spark job; the outputs are those of `driftline run`.

    With --save, Spark works off the history, and `driftline run --from-snapshot` goes on from it.
    """
    loaded = load_flow(flow)
    sources = open_given_files(loaded, inputs, shape, "Spark")
    begin = open_savepoint(start) if start is not None else None
    with sessions.start(f"run {loaded.name}", mostly_python=True) as session:
        from driftline.pipeline.running.runner import run as run_on_spark

        started = monotonic()
        ran = run_on_spark(
            loaded,
            session,
            sources,
            output,
            partitions=partitions,
            dead_letters=dead_letters,
            since=begin.time if begin is not None else 0,
            until=INFINITY if until is None else until,
            start=begin,
            save=save,
        )
        seconds = monotonic() - started
    report = {
        **ran.as_json(),
        "seconds": round(seconds, 3),
        "records_per_s": round(ran.records / seconds, 1),
    }
    write_json(json_file, report)
    tell(sessions.console, report)


@click.command()
@flow_argument
@inputs_option(INPUTS)
@click.option(
    "--output", "outputs", multiple=True, required=True, type=click.Path(path_type=Path),
    metavar="DIR", help="Outputs that the consumer has: JSON lines, LMDB or Parquet. Any number of "
    "times.",
)  # fmt: skip
@click.option("--from-snapshot", "start", type=click.Path(path_type=Path), metavar="DIR",
              help="Audit from the time of a savepoint on, beginning with its state.")  # fmt: skip
@click.option("--to-snapshot", "end", type=click.Path(path_type=Path), metavar="DIR",
              help="Audit up to the time of a savepoint, and compare its state.")  # fmt: skip
@click.option("--until", type=click.IntRange(0), metavar="N",
              help="Audit only outputs of records before number N (their time).")  # fmt: skip
@partitions_option
@on_error_option()
@reading_options()
@json_option
@on_spark
def audit(
    sessions: Sessions,
    flow: str,
    inputs: tuple[str, ...],
    outputs: tuple[Path, ...],
    start: Path | None,
    end: Path | None,
    until: int | None,
    partitions: int,
    dead_letters: bool,
    shape: Shape,
    json_file: Path | None,
) -> None:
    """Recompute the outputs of FLOW, and compare them with those that a consumer has.

    Exit status 0: the outputs are exactly right; 1: there are differences; 2: the audit could not
    be done.
    """
    try:
        loaded = load_flow(flow)
        sources = open_given_files(loaded, inputs, shape, "Spark")
        begin = open_savepoint(start) if start is not None else None
        shares_of(outputs, loaded, 1)  # raises for missing outputs before Spark starts
        last = open_savepoint(end) if end is not None else None
        if last is not None and until is not None:
            raise click.UsageError("give --to-snapshot or --until, not both")
        if last is not None:
            until = last.time
        with sessions.start(f"audit {loaded.name}", mostly_python=True) as session:
            from driftline.pipeline.audit.audit import audit as audit_on_spark

            report = audit_on_spark(
                loaded,
                session,
                sources,
                outputs,
                partitions=partitions,
                dead_letters=dead_letters,
                since=begin.time if begin is not None else 0,
                until=INFINITY if until is None else until,
                start=begin,
                end=last,
            )
        write_json(json_file, report.as_json())
    except (DriftlineError, OSError) as error:
        write_json(json_file, {"error": str(error)})
        complain(f"the audit could not be done: {error}")
        raise SystemExit(2) from None
    click.echo(report.text())
    if not report.clean:
        raise SystemExit(1)
