"""The command that kills processes: how long a recovery takes, and where its time goes."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

import driftline.bench.commands.options as options
from driftline.bench.commands.inputs import Corpus, corpus_options
from driftline.bench.commands.verdict import judge
from driftline.engine.ui.consoles import wide_console
from driftline.engine.ui.options import FiniteRange, json_option, plot_option
from driftline.engine.ui.results import write_json

KILLED = ("node", "master", "front", "host", "all")
"""What can be killed, in the order of the rows."""


def _names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in KILLED:
            raise click.BadParameter(f"{name!r} cannot be killed; there are {', '.join(KILLED)}")
    return list(dict.fromkeys(names))


@click.command()
@click.option("--killed", default=",".join(KILLED), show_default=True, metavar="A,B",
              callback=_names, help="What is killed: a node; the master that leads; "
              "the front's process; a whole host, with its agents; or master and nodes at once.",
              )  # fmt: skip
@click.option("--trials", default=9, show_default=True, type=click.IntRange(1, 1000),
              help="Kills of each row, each in a cluster of its own.")  # fmt: skip
@click.option("--spares", type=click.IntRange(0, 1),
              help="With a spare process, of a master one that stands by (1), or without (0). "
              "Those of a host die with it.  [default: both]")  # fmt: skip
@click.option("--rate", default=50.0, show_default=True, type=FiniteRange(10, 1000),
              help="Documents a second, evenly.")  # fmt: skip
@click.option("--interval-ms", default=1000, show_default=True, type=click.IntRange(10, 60_000),
              help="Time between checkpoints.")  # fmt: skip
@options.nodes
@corpus_options
@options.seed
@json_option
@plot_option("out/recovery.png")
def recovery(
    killed: list[str],
    trials: int,
    spares: int | None,
    rate: float,
    interval_ms: int,
    nodes: int,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Time from kill -9 to the first new output, and where it goes, under exactly-once.

    By default this takes a quarter of an hour: nine rounds have a trial of some ten seconds for
    each row. The time is split into detection, restart, restore and replay. The picture shows the
    latency of documents before and after the kill, from the time at which they are due. A master, a
    front and a host are killed in a cluster of agents with ZooKeeper, which needs PySpark and Java.
    """
    from driftline.bench.experiments.recovery import NO_SPARES, documents_of, measure_recovery
    from driftline.bench.report.recoveries import as_json, draw, table, wrong_recoveries

    if spares and set(killed) <= set(NO_SPARES):
        raise click.UsageError("the spares of a host die with it: give --spares 0")
    documents = corpus.load(documents_of(rate, interval_ms / 1000))
    rows = measure_recovery(
        documents,
        killed,
        [0, 1] if spares is None else [spares],
        trials,
        rate,
        interval_ms / 1000,
        nodes,
        seed,
        Console(stderr=True),
    )
    write_json(json_file, as_json(rows, rate, interval_ms), indent=2)
    wide_console().print(table(rows, rate, interval_ms))
    draw(rows, rate, interval_ms, plot)
    click.echo(f"picture: {plot}")
    judge(wrong_recoveries(rows))
