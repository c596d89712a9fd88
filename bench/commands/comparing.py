"""The commands that compare policies with the floor: latency and throughput."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

import driftline.bench.commands.options as options
from driftline.bench.commands.inputs import Corpus, check_warmup, corpus_options
from driftline.bench.commands.verdict import judge
from driftline.engine.policy import POLICIES
from driftline.engine.ui.consoles import wide_console
from driftline.engine.ui.options import json_option, plot_option
from driftline.engine.ui.results import write_json

LATENCY_DOCUMENTS = 710
"""After the warm-up, and in three rounds, enough for a 99th percentile."""

THROUGHPUT_DOCUMENTS = 15_000


@click.command()
@options.rate
@options.documents(LATENCY_DOCUMENTS, "Documents of each run, with the warm-up.")
@options.warmup
@options.repeat(3)
@options.nodes
@options.policies("none,exactly-once,two-phase")
@options.checkpoints("50,1000")
@options.durable(True)
@options.transports
@options.ordering
@corpus_options
@options.seed
@json_option
@plot_option("out/latency.png")
@options.raw
def latency(
    rate: float,
    documents: int,
    warmup: int,
    repeat: int,
    nodes: int,
    policies: list[str],
    checkpoints: list[int],
    durable: bool,
    transports: list[str],
    ordering: str,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
    raw: Path | None,
) -> None:
    """Latency of the policies at a fixed rate, from the time at which a document is due.

    By default this takes four to five minutes: each of three rounds has a run of eight seconds for
    each policy, checkpoint interval and kind of ends. Figures are medians of the runs, but `max`
    is the largest latency of all.
    `micro-batch` is the same flow on Spark, which checkpoints every batch; it needs half a minute
    to warm up.
    """
    check_warmup(documents, warmup)

    from driftline.bench.experiments.latency import latencies_of, measure_latency
    from driftline.bench.measuring.disk import sync_ms
    from driftline.bench.report.check import wrong_rows
    from driftline.bench.report.pictures import draw_latency
    from driftline.bench.report.raw import write_raw
    from driftline.bench.systems.cases import cases
    from driftline.bench.systems.setup import Setup

    rows = cases(policies, checkpoints, max(checkpoints) if durable else None, transports)
    setup = Setup(corpus.load(documents), nodes, ordering)
    disk_ms = sync_ms()
    rounds = measure_latency(setup, rows, rate, warmup, seed, repeat, Console(stderr=True))
    latencies = latencies_of(setup, rows, rate, rounds, disk_ms)
    write_json(json_file, latencies.as_json(), indent=2)
    wide_console().print(*latencies.tables(), sep="\n")
    draw_latency(latencies, plot)
    click.echo(f"picture: {plot}")
    if raw is not None:
        write_raw(raw, rounds.runs)
        click.echo(f"raw records: {raw}")
    judge(wrong_rows(latencies.rows))


@click.command()
@options.documents(THROUGHPUT_DOCUMENTS, "Documents of each run.")
@options.repeat(3)
@options.nodes
@options.policies(",".join(POLICIES))
@options.checkpoints("1000")
@options.durable(False)
@options.transports
@options.ordering
@corpus_options
@json_option
@plot_option("out/throughput.png")
def throughput(
    documents: int,
    repeat: int,
    nodes: int,
    policies: list[str],
    checkpoints: list[int],
    durable: bool,
    transports: list[str],
    ordering: str,
    corpus: Corpus,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Documents a second of every policy, under back-pressure.

    By default this takes about four minutes. Figures are medians over the rounds, and come with
    the least and the largest of them. `micro-batch`, the same flow on Spark, gets at most 600
    documents.
    """
    from driftline.bench.experiments.throughput import measure_throughput, throughputs_of
    from driftline.bench.report.check import wrong_rows
    from driftline.bench.report.pictures import draw_throughput
    from driftline.bench.systems.cases import cases
    from driftline.bench.systems.setup import Setup

    rows = cases(policies, checkpoints, max(checkpoints) if durable else None, transports)
    setup = Setup(corpus.load(documents), nodes, ordering)
    rounds = measure_throughput(setup, rows, repeat, Console(stderr=True))
    throughputs = throughputs_of(setup, rows, rounds)
    write_json(json_file, throughputs.as_json(), indent=2)
    wide_console().print(*throughputs.tables(), sep="\n")
    draw_throughput(throughputs, plot)
    click.echo(f"picture: {plot}")
    judge(wrong_rows(throughputs.rows))
