"""The `driftline spark` commands. `--help` neither imports nor starts Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Console

from driftline.connectors.inputs import open_files, open_rereadable_inputs
from driftline.engine.errors import DriftlineError
from driftline.engine.flow.loading import load_flow
from driftline.engine.labels import INFINITY
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.sources.record import RecordFormat
from driftline.engine.texts import print_error
from driftline.engine.ui.consoles import print_report, wide_console
from driftline.engine.ui.options import (
    FiniteRange,
    flow_argument,
    inputs_option,
    json_option,
    on_error_option,
    output_option,
    plot_option,
    reading_options,
)
from driftline.engine.ui.results import write_json
from driftline.pipeline import PARTITIONS
from driftline.pipeline.output_shares import shares_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


R = TypeVar("R")


class Sessions:
    """Factory of the Spark session that a command's options describe."""

    def __init__(self, master: str | None, conf: dict[str, str]) -> None:
        self.master = master
        self.conf = conf
        self.console = Console(stderr=True)

    @contextmanager
    def start(self, name: str, *, mostly_python: bool = False) -> Iterator[SparkSession]:
        """Start a session, and show its progress until the end of the context.

        `mostly_python`: the work is done in Python, and the JVM only moves rows. Raises Unavailable
        if Spark does not start.
        """
        from driftline.pipeline.session import FRUGAL_CONF, session, show_progress

        conf = {**FRUGAL_CONF, **self.conf} if mostly_python else self.conf
        with session(name, self.master, conf) as spark, show_progress(spark, self.console, name):
            yield spark


def _parse_conf(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    settings = {}
    for setting in values:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r}: expected NAME=VALUE")
        settings[name] = value
    return settings


def on_spark(command: Callable[..., R]) -> Callable[..., R]:
    """Decorate a command with session options, passed to it as `sessions: Sessions`."""

    @click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]")
    @click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_parse_conf,
        help="A setting of Spark, such as spark.driver.memory=8g. Any number of times.",
    )
    @wraps(command)
    def with_sessions(master: str | None, conf: dict[str, str], **arguments: object) -> R:
        return command(sessions=Sessions(master, conf), **arguments)

    return with_sessions


partitions_option = click.option(
    "--partitions",
    default=PARTITIONS,
    show_default=True,
    type=click.IntRange(1),
    help="Number of Spark partitions; the state of one must fit into the memory of a task.",
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
              help="Process only records with a time below N. In a file, a record's time is its "
              "number.")  # fmt: skip
@click.option("--from-savepoint", "start", type=click.Path(path_type=Path), metavar="DIR",
              help="Start at the time of a savepoint, with its state.")  # fmt: skip
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR",
              help="Write the state at the end as a savepoint, for `run --from-savepoint`.",
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
    record_format: RecordFormat,
    json_file: Path | None,
) -> None:
    """Run FLOW over files as a Spark batch job.

    The outputs are those of `driftline run`. With --save, Spark processes the history, and
    `driftline run --from-savepoint` resumes from it.
    """
    loaded_flow = load_flow(flow)
    sources = open_rereadable_inputs(loaded_flow, inputs, record_format, "Spark")
    start_savepoint = open_savepoint(start) if start is not None else None
    with sessions.start(f"run {loaded_flow.name}", mostly_python=True) as session:
        from driftline.pipeline.runner import run as run_on_spark

        started = monotonic()
        counts = run_on_spark(
            loaded_flow,
            session,
            sources,
            output,
            partitions=partitions,
            dead_letters=dead_letters,
            since=start_savepoint.time if start_savepoint is not None else 0,
            until=INFINITY if until is None else until,
            start=start_savepoint,
            save=save,
        )
        seconds = monotonic() - started
    report = {
        **counts.as_json(),
        "seconds": round(seconds, 3),
        "records_per_s": round(counts.records / seconds, 1),
    }
    write_json(json_file, report)
    print_report(sessions.console, report)


@click.command()
@flow_argument
@inputs_option(INPUTS)
@click.option(
    "--output", "outputs", multiple=True, required=True, type=click.Path(path_type=Path),
    metavar="DIR", help="Delivered outputs to audit: JSON lines or LMDB. Any number of times.",
)  # fmt: skip
@click.option("--from-savepoint", "start", type=click.Path(path_type=Path), metavar="DIR",
              help="Audit from the time of a savepoint on, starting with its state.")  # fmt: skip
@click.option("--to-savepoint", "end", type=click.Path(path_type=Path), metavar="DIR",
              help="Audit up to the time of a savepoint, and compare its state.")  # fmt: skip
@click.option("--until", type=click.IntRange(0), metavar="N",
              help="Audit only outputs of records with a time below N. In a file, a record's time "
              "is its number.")  # fmt: skip
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
    record_format: RecordFormat,
    json_file: Path | None,
) -> None:
    """Recompute the outputs of FLOW, and compare the delivered outputs with them.

    Exit status 0: the outputs are exactly right; 1: there are differences; 2: the audit could not
    run.
    """
    try:
        loaded_flow = load_flow(flow)
        sources = open_rereadable_inputs(loaded_flow, inputs, record_format, "Spark")
        start_savepoint = open_savepoint(start) if start is not None else None
        shares_of(outputs, loaded_flow, 1)  # raises for missing outputs before Spark starts
        end_savepoint = open_savepoint(end) if end is not None else None
        if end_savepoint is not None and until is not None:
            raise click.UsageError("give --to-savepoint or --until, not both")
        if end_savepoint is not None:
            until = end_savepoint.time
        with sessions.start(f"audit {loaded_flow.name}", mostly_python=True) as session:
            from driftline.pipeline.audit import audit as audit_on_spark

            report = audit_on_spark(
                loaded_flow,
                session,
                sources,
                outputs,
                partitions=partitions,
                dead_letters=dead_letters,
                since=start_savepoint.time if start_savepoint is not None else 0,
                until=INFINITY if until is None else until,
                start=start_savepoint,
                end=end_savepoint,
            )
        write_json(json_file, report.as_json())
    except (DriftlineError, OSError) as error:
        write_json(json_file, {"error": str(error)})
        print_error(f"the audit could not be done: {error}")
        raise SystemExit(2) from None
    click.echo(report.text())
    if not report.is_clean:
        raise SystemExit(1)


@click.command()
@click.option("--input", "name", required=True, metavar="FILE",
              help="A MediaWiki dump (.xml, .bz2 or multistream .bz2), or any other file that "
              "`driftline run` reads.",
              )  # fmt: skip
@output_option("Directory for the documents, and for dead-letters.")
@click.option("--format", "form", default="parquet", show_default=True,
              type=click.Choice(["parquet", "jsonl"]), help="Format of the documents.",
              )  # fmt: skip
@reading_options(in_sections=True)
@json_option
@on_spark
def corpus(
    sessions: Sessions,
    name: str,
    output: Path,
    form: str,
    record_format: RecordFormat,
    json_file: Path | None,
) -> None:
    """Convert a dump to a corpus of documents.

    A document is {id, title, text}, as Parquet or JSON lines. Pages that cannot be read go to
    DIR/dead-letters. With --format jsonl, `driftline run` can read DIR/documents-*.jsonl.
    """
    source = open_files([name], record_format, "Spark")
    with sessions.start("corpus") as session:
        from driftline.pipeline.corpus import make_corpus

        started = monotonic()
        counts = make_corpus(session, source, output, form)
        report: dict[str, object] = {
            "documents": counts.documents,
            "bad_records": counts.bad_records,
            "seconds": round(monotonic() - started, 3),
        }
    write_json(json_file, report)
    print_report(sessions.console, report)


@click.command()
@click.argument("records", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--bucket-s", type=FiniteRange(0, min_open=True), metavar="S",
              help="Length of the buckets of the time line, in seconds.  [default: a power of ten, "
              "for at most 100 buckets]")  # fmt: skip
@plot_option()
@json_option
@on_spark
def latency(
    sessions: Sessions,
    records: tuple[Path, ...],
    bucket_s: float | None,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Compute latency percentiles from the records of `driftline bench latency`.

    RECORDS are files that `driftline bench latency --raw` has written, or directories of them. The
    table has a row for each policy, snapshot interval and durability of inputs and outputs; the
    JSON has histograms and time lines, too. The picture shows the distributions, and percentiles
    over time.
    """
    with sessions.start("latency") as session:
        from driftline.pipeline.latency import analyse, read_records

        analysis = analyse(read_records(session, records), bucket_s)
    write_json(json_file, analysis.as_json())
    wide_console().print(analysis.table())
    if plot is not None:
        from driftline.pipeline.latency import draw_latency

        draw_latency(analysis, plot)
        click.echo(f"picture: {plot}")


@click.group()
def spark() -> None:
    """Run flows as Spark batch jobs: backfill, and audit of delivered outputs."""


for command in (run, audit, corpus, latency):
    spark.add_command(command)
