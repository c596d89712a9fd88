"""The Spark commands without a flow: make a corpus, analyse latencies."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import click

from driftline.engine.sources.inputs import open_files
from driftline.engine.sources.record import Shape
from driftline.engine.ui.consoles import tell, wide_console
from driftline.engine.ui.options import (
    FiniteRange,
    json_option,
    output_option,
    plot_option,
    reading_options,
    writable,
)
from driftline.engine.ui.results import write_json
from driftline.pipeline.commands.options import Sessions, on_spark


@click.command()
@click.option("--input", "name", required=True, metavar="FILE",
              help="A dump (.xml, .bz2, also multistream), or another file that `run` reads.",
              )  # fmt: skip
@output_option("Directory for the documents, and for dead-letters.")
@click.option("--format", "form", default="parquet", show_default=True,
              type=click.Choice(["parquet", "jsonl"]), help="Format of the documents.",
              )  # fmt: skip
@reading_options(in_sections=True)
@click.option("--statistics", "statistics_file", type=click.Path(path_type=Path), metavar="FILE",
              callback=writable, help="Count words; write the figures as JSON.")  # fmt: skip
@plot_option()
@json_option
@on_spark
def corpus(
    sessions: Sessions,
    name: str,
    output: Path,
    form: str,
    shape: Shape,
    statistics_file: Path | None,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Make a corpus of a dump: documents {id, title, text}, as Parquet or JSON lines.

    Pages that cannot be read are in DIR/dead-letters. With JSON lines, DIR/documents-*.jsonl are
    inputs for `driftline run`. The picture shows the frequency of words by rank (Zipf's law).
    """
    source = open_files([name], shape, "Spark")
    with sessions.start("corpus") as session:
        from driftline.pipeline.corpus.corpus import make_corpus, read_corpus

        started = monotonic()
        made = make_corpus(session, source, output, form)
        report: dict[str, object] = {
            "documents": made.documents,
            "bad_records": made.bad_records,
            "seconds": round(monotonic() - started, 3),
        }
        if statistics_file is not None or plot is not None:
            from driftline.pipeline.corpus.picture import draw_zipf
            from driftline.pipeline.corpus.statistics import statistics

            counts = statistics(read_corpus(session, output, form))
            figures = counts.as_json()
            write_json(statistics_file, figures, indent=2)
            if plot is not None:
                draw_zipf(counts, plot)
            report |= {name: figures[name] for name in ("words", "vocabulary", "zipf_exponent")}
    write_json(json_file, report)
    tell(sessions.console, report)


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
    """Percentiles of latency RECORDS: files and directories of `driftline bench latency --raw`.

    There is a row per policy and checkpoint interval; the JSON has histograms and time lines, too.
    The picture shows the distributions, and percentiles over time.
    """
    with sessions.start("latency") as session:
        from driftline.pipeline.latency.analysis import analyse, read_records

        analysis = analyse(read_records(session, records), bucket_s)
    write_json(json_file, analysis.as_json())
    wide_console().print(analysis.table())
    if plot is not None:
        from driftline.pipeline.latency.picture import draw_latency

        draw_latency(analysis, plot)
        click.echo(f"picture: {plot}")
