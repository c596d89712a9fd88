"""The commands `driftline spark ...`, and what is told in the end.

Spark is started by a command, not by its `--help`.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic

import click
from rich.console import Console

from driftline.engine.errors import DriftlineError
from driftline.engine.flow.loading import load_flow
from driftline.engine.labels import INFINITY
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.sources.inputs import open_files, open_given_files
from driftline.engine.sources.record import Shape
from driftline.pipeline.found import pieces_of
from driftline.pipeline.options import (
    Sessions,
    flow_argument,
    input_option,
    json_option,
    on_spark,
    output_option,
    partitions_option,
    plot_option,
    reading,
    room,
    wide_console,
)


@click.group()
def spark() -> None:
    """Run flows on Spark: history, proof, and scale beyond the nodes' machines."""


@spark.command()
@flow_argument
@input_option
@output_option
@click.option("--until", type=click.IntRange(0), metavar="N",
              help="Only records before number N (their time).")  # fmt: skip
@click.option("--from-snapshot", "start", type=click.Path(path_type=Path), metavar="DIR",
              help="Begin with the state of a savepoint, at its time.")  # fmt: skip
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR",
              help="Leave the state in the end as a savepoint: nodes can go on from it.",
              )  # fmt: skip
@partitions_option
@reading
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
    on_error: str,
    id_field: str | None,
    text_field: str | None,
    sections: bool,
    json_file: Path | None,
) -> None:
    """Run FLOW over files as a Spark job; the outputs are those of `driftline run`.

    With --save, history is run here, and `driftline run --from-snapshot` goes on with the rest.
    """
    found = load_flow(flow)
    sources = open_given_files(found, inputs, Shape(id_field, text_field, sections), "Spark")
    begin = open_savepoint(start) if start is not None else None
    with sessions.start(f"run {found.name}", mostly_python=True) as session:
        from driftline.pipeline.runner import run as run_on_spark

        started = monotonic()
        ran = run_on_spark(
            found,
            session,
            sources,
            output,
            partitions=partitions,
            dead_letters=on_error == "dead-letter",
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
    tell(sessions.console, report, json_file)


@spark.command()
@flow_argument
@input_option
@click.option(
    "--output", "outputs", multiple=True, required=True, type=click.Path(path_type=Path),
    metavar="DIR", help="What the consumer has: JSON lines, LMDB or Parquet. Any number of times.",
)  # fmt: skip
@click.option("--from-snapshot", "start", type=click.Path(path_type=Path), metavar="DIR",
              help="Audit from the time of this savepoint on, from its state.")  # fmt: skip
@click.option("--to-snapshot", "end", type=click.Path(path_type=Path), metavar="DIR",
              help="Audit up to the time of this savepoint, and the state in it.")  # fmt: skip
@click.option("--until", type=click.IntRange(0), metavar="N",
              help="Audit only outputs of records before number N (their time).")  # fmt: skip
@partitions_option
@reading
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
    on_error: str,
    id_field: str | None,
    text_field: str | None,
    sections: bool,
    json_file: Path | None,
) -> None:
    """Recompute the outputs of FLOW, and compare them with what a consumer has.

    Exit status 0: the consumer has exactly what it must have; 1: it has not; 2: the audit could
    not be done.
    """
    try:
        found = load_flow(flow)
        sources = open_given_files(found, inputs, Shape(id_field, text_field, sections), "Spark")
        begin = open_savepoint(start) if start is not None else None
        pieces_of(outputs, found, 1)  # what is not there is told before Spark has started
        last = open_savepoint(end) if end is not None else None
        if last is not None and until is not None:
            raise click.UsageError("give --to-snapshot or --until, not both")
        if last is not None:
            until = last.time
        with sessions.start(f"audit {found.name}", mostly_python=True) as session:
            from driftline.pipeline.audit import audit as audit_on_spark

            report = audit_on_spark(
                found,
                session,
                sources,
                outputs,
                partitions=partitions,
                dead_letters=on_error == "dead-letter",
                since=begin.time if begin is not None else 0,
                until=INFINITY if until is None else until,
                start=begin,
                end=last,
            )
        if json_file is not None:
            json_file.write_text(json.dumps(report.as_json(), ensure_ascii=False) + "\n")
    except (DriftlineError, OSError) as error:
        click.echo(f"driftline: the audit could not be done: {error}", err=True)
        raise SystemExit(2) from None
    click.echo(report.text())
    if not report.clean:
        raise SystemExit(1)


@spark.command()
@flow_argument
@click.option("--snapshot", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="The savepoint to look into.")  # fmt: skip
@click.option("--sql", default="SELECT * FROM state", show_default=True, metavar="QUERY",
              help="What to ask; `state` has the columns group, operator, state, key, slot, value, "
              "the last three as JSON.")  # fmt: skip
@click.option("--write", type=click.Path(path_type=Path), metavar="DIR",
              help="Leave the result, which has the same columns, as a new savepoint.",
              )  # fmt: skip
@click.option("--rows", default=20, show_default=True, type=click.IntRange(1),
              help="Rows to show.")  # fmt: skip
@on_spark
def state(
    sessions: Sessions, flow: str, snapshot: Path, sql: str, write: Path | None, rows: int
) -> None:
    """Ask the state in a savepoint of FLOW by SQL, and write a changed one.

    A savepoint comes from `driftline savepoint`, or from `driftline spark run --save`.
    """
    found = load_flow(flow)
    savepoint = open_savepoint(snapshot)
    with sessions.start(f"state of {found.name}") as session:
        from driftline.pipeline.failures import explained
        from driftline.pipeline.states import COLUMNS, read_state, write_state

        with explained():
            read_state(session, savepoint, found).createOrReplaceTempView("state")
            result = session.sql(sql)
            if write is None:
                result.show(rows, truncate=False)
                return
            missing = sorted({*COLUMNS} - {*result.columns})
            if missing:
                raise click.UsageError(f"the result of --sql lacks the columns {missing}")
            made = write_state(result, found, savepoint.time, write)
    click.echo(f"{write}: the state before time {made.time}, {len(made.files)} files")


@spark.command()
@click.option("--input", "name", required=True, metavar="FILE",
              help="A dump (.xml, .bz2, also multistream), or what else `run` reads.")  # fmt: skip
@click.option("--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Directory for the documents, and for dead-letters.")  # fmt: skip
@click.option("--format", "form", default="parquet", show_default=True,
              type=click.Choice(["parquet", "jsonl"]), help="How documents are written.",
              )  # fmt: skip
@click.option("--sections/--no-sections", default=True, show_default=True,
              help="Clean wikitext and make each section a document, or leave pages as they are.",
              )  # fmt: skip
@click.option("--text-field", metavar="NAME", help="Field that holds a record's text.")
@click.option("--id-field", metavar="NAME", help="Field that holds a record's id.")
@click.option("--statistics", "statistics_file", type=click.Path(path_type=Path), metavar="FILE",
              callback=room, help="Count words; write the figures as JSON.")  # fmt: skip
@plot_option
@json_option
@on_spark
def corpus(
    sessions: Sessions,
    name: str,
    output: Path,
    form: str,
    sections: bool,
    text_field: str | None,
    id_field: str | None,
    statistics_file: Path | None,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Make a corpus of a dump: documents {id, title, text}, as Parquet or JSON lines.

    Parts are read in parallel. Pages that cannot be read are in DIR/dead-letters. With JSON lines,
    `cat DIR/documents-*.jsonl > FILE.jsonl` is an input for `driftline run` that gives the words
    of the dump. The picture shows how frequent words are by their rank (Zipf's law).
    """
    source = open_files([name], Shape(id_field, text_field, sections), "Spark")
    with sessions.start("corpus") as session:
        from driftline.pipeline.corpus import make_corpus, read_corpus

        started = monotonic()
        made = make_corpus(session, source, output, form)
        report: dict[str, object] = {
            "documents": made.documents,
            "bad_records": made.bad_records,
            "seconds": round(monotonic() - started, 3),
        }
        if statistics_file is not None or plot is not None:
            from driftline.pipeline.pictures import draw_zipf
            from driftline.pipeline.statistics import statistics

            found = statistics(read_corpus(session, output, form))
            figures = found.as_json()
            if statistics_file is not None:
                statistics_file.write_text(json.dumps(figures, ensure_ascii=False, indent=2) + "\n")
            if plot is not None:
                draw_zipf(found, plot)
            report |= {name: figures[name] for name in ("words", "vocabulary", "zipf_exponent")}
    tell(sessions.console, report, json_file)


@spark.command()
@click.argument("records", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--bucket-s", type=click.FloatRange(0, min_open=True), metavar="S",
              help="Seconds of a bucket of the time line.  [default: 1, 10, ... : at most 100 "
              "buckets]")  # fmt: skip
@plot_option
@json_option
@on_spark
def latency(
    sessions: Sessions,
    records: tuple[Path, ...],
    bucket_s: float | None,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Percentiles of latency RECORDS: files and directories of `driftline bench latency --raw`.

    Per policy and checkpoint interval, for as many records as there are; in the JSON also as
    histogram and time line. The picture shows the distributions, and percentiles over time.
    """
    with sessions.start("latency") as session:
        from driftline.pipeline.latency import analyse, read_records

        found = analyse(read_records(session, records), bucket_s)
    if json_file is not None:
        json_file.write_text(json.dumps(found.as_json(), allow_nan=False) + "\n")
    wide_console().print(found.table())
    if plot is not None:
        from driftline.pipeline.pictures import draw_latency

        draw_latency(found, plot)
        click.echo(f"picture: {plot}")


def tell(console: Console, report: dict[str, object], json_file: Path | None) -> None:
    """Say what was done, to people and to machines."""
    if json_file is not None:
        json_file.write_text(json.dumps(report) + "\n")
    told = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in report.items())
    console.print(told, soft_wrap=True)
