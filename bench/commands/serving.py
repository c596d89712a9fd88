"""The commands that measure the index as a service."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

import driftline.bench.commands.options as options
from driftline.bench.commands.inputs import Corpus, corpus_options
from driftline.bench.commands.verdict import judge
from driftline.engine.errors import Unavailable
from driftline.engine.ui.consoles import wide_console
from driftline.engine.ui.options import (
    FiniteRange,
    json_option,
    plot_option,
    refuse_options,
    writable,
)
from driftline.engine.ui.results import write_json


@click.command()
@options.documents(20_000, "Documents that are in the index before the load begins.")
@click.option("--rate", default=50.0, show_default=True, type=FiniteRange(0, 10_000),
              help="Documents a second, arriving as a Poisson process.")  # fmt: skip
@click.option("--searches", default=50.0, show_default=True, type=FiniteRange(0, 10_000),
              help="Queries a second, arriving as another one.")  # fmt: skip
@click.option("--seconds", default=30.0, show_default=True, type=FiniteRange(0.5),
              help="Duration of the load, after a warm-up of up to 2 seconds.")  # fmt: skip
@click.option("--searchers", default=1, show_default=True, type=click.IntRange(1, 64),
              help="Shards of the index, each a process.")  # fmt: skip
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 64),
              help="Node processes.")  # fmt: skip
@click.option("--compare", is_flag=True,
              help="Give the same load to tantivy, SQLite FTS5 and, where there is one, Redis "
              "search.")  # fmt: skip
@click.option("--locust", "users", type=click.IntRange(2, 100_000), metavar="USERS",
              help="Let so many users of locust put, delete, search, page and follow instead: "
              "each does one thing a second, one follows the changes.")  # fmt: skip
@click.option("--url", metavar="URL", help="With --locust: of a service that runs already.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", callback=writable,
              help="With --locust: write every answer, as JSON lines.")  # fmt: skip
@corpus_options
@options.seed
@json_option
@plot_option("out/service.png")
def service(
    documents: int,
    rate: float,
    searches: float,
    seconds: float,
    searchers: int,
    nodes: int,
    compare: bool,
    users: int | None,
    url: str | None,
    record: Path | None,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Measure `driftline serve`: how soon a document is found, and how long queries take.

    By default this takes a minute, and with --compare three. Freshness is the time from which a
    document is due until the answer to a query has it. All latencies count from the due time.
    """
    if users is not None:
        refuse_options(["--compare", "--plot", "--rate", "--searches", "--seed"], "with --locust")
        _use(users, url, record, corpus, documents, nodes, searchers, seconds, json_file)
        return
    if url is not None or record is not None:
        raise click.UsageError("--url and --record are for --locust")

    from driftline.bench.experiments.service import measure_service
    from driftline.bench.measuring.disk import sync_ms
    from driftline.bench.measuring.load import Wanted
    from driftline.bench.report.services import Services, draw_services

    wanted = Wanted(documents, rate, searches, seconds, seed)
    load = wanted.load(corpus.load(wanted.needed))
    console = Console(stderr=True)
    disk_ms = sync_ms()
    ours = measure_service(load, nodes, searchers, console)
    peers = {}
    if compare:
        from driftline.bench.experiments.peers import measure_peers

        peers = measure_peers(load, console)
    found = Services(wanted, nodes, searchers, ours, peers, disk_ms)
    write_json(json_file, found.as_json(), indent=2)
    wide_console().print(*found.tables(), sep="\n")
    draw_services(found, plot)
    click.echo(f"picture: {plot}")
    judge(found.problems())


def _use(
    users: int,
    url: str | None,
    record: Path | None,
    corpus: Corpus,
    documents: int,
    nodes: int,
    searchers: int,
    seconds: float,
    json_file: Path | None,
) -> None:
    """Let users of locust use a service."""
    if find_spec("locust") is None:
        raise Unavailable("--locust needs locust: pip install 'driftline[bench]'")
    from driftline.bench.experiments.users import serve_and_use, use

    if url is not None:
        refuse_options(["--documents", "--nodes", "--searchers"], "with --url: it runs already")
        used = use(url, users, seconds, record)
    else:
        loaded = corpus.load(documents)
        used = serve_and_use(loaded, nodes, searchers, users, seconds, record)
    write_json(json_file, used.as_json(), indent=2)
    wide_console().print(*used.tables(), sep="\n")
    judge(used.problems())
