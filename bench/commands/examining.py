"""The command that compares the orderings of Driftline."""

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


@click.command()
@click.option("--nodes", default="1,2,3", show_default=True, metavar="N,N",
              callback=options.whole_numbers, help="Numbers of node processes.")  # fmt: skip
@click.option("--rates", default="50,200,500", show_default=True, metavar="R,R",
              callback=options.whole_numbers, help="Documents a second.")  # fmt: skip
@click.option("--seconds", default=8.0, show_default=True, type=FiniteRange(0.1),
              help="Duration of each rate; the first quarter is warm-up.")  # fmt: skip
@click.option("--saturated", default=8000, show_default=True, type=click.IntRange(0),
              help="Documents of the saturated runs, as fast as possible; 0: no such runs.",
              )  # fmt: skip
@corpus_options
@options.seed
@json_option
@plot_option("out/ordering.png")
def ordering(
    nodes: list[int],
    rates: list[int],
    seconds: float,
    saturated: int,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Speculative against buffered ordering, under exactly-once.

    By default this takes about four minutes. Speculation applies elements at once, and inserts late
    elements at their place; buffering waits until no element can come late.
    """
    if min(rates) * seconds < 10:
        raise click.UsageError(
            f"{seconds:g} s at {min(rates)} documents a second are too few documents: give at "
            "least 10, by --seconds or --rates"
        )

    from driftline.bench.experiments.ordering import (
        as_json,
        draw,
        loads,
        measure_ordering,
        table,
        wrong_orderings,
    )

    documents = corpus.load(max(saturated, round(max(rates) * seconds)))
    load = loads(documents, rates, seconds, saturated)
    rows = measure_ordering(load, nodes, seed, Console(stderr=True))
    write_json(json_file, as_json(rows), indent=2)
    wide_console().print(table(rows))
    draw(rows, plot)
    click.echo(f"picture: {plot}")
    judge(wrong_orderings(rows))
