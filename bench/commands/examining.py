"""The commands that measure Driftline alone: its ordering, its memory, its CPU time by step, its
journal."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

import driftline.bench.commands.options as options
from driftline.bench.commands.inputs import Corpus, corpus_options
from driftline.bench.commands.verdict import judge
from driftline.engine.policy import POLICIES
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


@click.command()
@options.documents(20_000, "Documents of the index.")
@click.option("--seconds", default=300.0, show_default=True, type=FiniteRange(10.0),
              help="Duration of the word count.")  # fmt: skip
@options.nodes
@corpus_options
@options.seed
@json_option
def memory(
    documents: int,
    seconds: float,
    nodes: int,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
) -> None:
    """Memory of the nodes: with a large index, and during five minutes with a fixed vocabulary.

    In the second run memory must not grow after the beginning; `growth` compares the last tenth of
    the time with the second half of the first fifth.
    """
    from driftline.bench.experiments.memory import measure_memory

    memory = measure_memory(corpus.load(documents), nodes, seconds, seed)
    write_json(json_file, memory.as_json(), indent=2)
    wide_console().print(memory.table())


@click.command()
@click.option("--policy", default="exactly-once", show_default=True,
              type=click.Choice(list(POLICIES)), help="What is guaranteed.")  # fmt: skip
@options.documents(6_000, "Documents.")
@click.option("--block", default=12, show_default=True, type=click.IntRange(1),
              help="Documents in a frame: 1 at low rates, about 12 under load.")  # fmt: skip
@click.option("--snapshot-every", default=2000, show_default=True, type=click.IntRange(1),
              help="Documents from one snapshot to the next.")  # fmt: skip
@corpus_options
@json_option
def profile(
    policy: str,
    documents: int,
    block: int,
    snapshot_every: int,
    corpus: Corpus,
    json_file: Path | None,
) -> None:
    """CPU time of each step of the data path.

    The components of a node run in this process, with a clock between the steps, without ZeroMQ and
    waiting. For a running process use py-spy: `py-spy top --pid PID`, with the ids of the processes
    `deploy.host.process` of a `driftline run` or `driftline bench`.
    """
    from driftline.bench.experiments.profile import profile_path

    profile = profile_path(corpus.load(documents), policy, block, snapshot_every)
    write_json(json_file, profile.as_json(), indent=2)
    wide_console().print(profile.table())


@click.command()
@click.option("--bundles", default=5_000, show_default=True, type=click.IntRange(1),
              help="Bundles that are stored.")  # fmt: skip
@click.option("--items", default=20, show_default=True, type=click.IntRange(1),
              help="Outputs in a bundle.")  # fmt: skip
@click.option("--lookups", default=100_000, show_default=True, type=click.IntRange(1),
              help="Keys that are looked up.")  # fmt: skip
@options.seed
@json_option
def journal(bundles: int, items: int, lookups: int, seed: int, json_file: Path | None) -> None:
    """How fast the journal stores and replays, and the key-value view applies and answers.

    Both in this process, without a network. Storing is with fdatasync, once for each bundle and
    once for many.
    """
    from driftline.bench.experiments.journal import measure_journal

    stored = measure_journal(bundles, items, lookups, seed)
    write_json(json_file, stored.as_json(), indent=2)
    wide_console().print(stored.table())
