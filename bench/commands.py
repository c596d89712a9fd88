"""Commands `driftline bench ...`.

A command imports its experiment when it runs, so that `--help` is fast and a missing package gives
a one-line error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import driftline.bench.options as options
from driftline.bench.options import Corpus, corpus_options
from driftline.deploy.runtime.signals import Signals
from driftline.engine.errors import Unavailable
from driftline.engine.policy import POLICIES
from driftline.engine.texts import print_error
from driftline.engine.ui.consoles import wide_console
from driftline.engine.ui.options import FiniteRange, json_option, plot_option, refuse_options
from driftline.engine.ui.results import write_json

VICTIMS = ("node", "all")
"""The values of --killed, in the order of the rows."""


@click.group()
def bench() -> None:
    """Benchmark Driftline: an inverted index, in runs and as a service, and windows.

    Runs of the index are compared with the floor: the same job in plain Python, without fault
    tolerance. Other programs that run during a benchmark change the figures.
    """
    missing = [name for name in ("matplotlib", "psutil") if find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"the benchmark needs {' and '.join(missing)}: pip install 'driftline[bench]'"
        )
    click.get_current_context().with_resource(Signals())  # clean up directories on SIGTERM, too


def _show(json_file: Path | None, figures: Mapping[str, object], tables: Sequence[Table]) -> None:
    """Write the figures of an experiment, and print its tables."""
    write_json(json_file, figures, indent=2)
    wide_console().print(*tables, sep="\n")


def _report_problems(problems: Iterable[str], picture: Path | None = None) -> None:
    """Print the path of the picture, and the problems; exit with status 1 if there are any."""
    if picture is not None:
        click.echo(f"picture: {picture}")
    all_problems = list(problems)
    for problem in all_problems:
        print_error(problem)
    if all_problems:
        click.get_current_context().exit(1)


@bench.command()
@click.option("--rate", default=100.0, show_default=True, type=FiniteRange(0.1, 100_000),
              help="Documents a second, arriving as a Poisson process.")  # fmt: skip
@options.documents(710, "Documents of each run, including the warm-up.")
@options.warmup
@options.repeat
@options.nodes(2)
@options.policies("none,exactly-once,two-phase")
@options.snapshot_intervals("50,1000")
@options.durable(True)
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
    snapshot_intervals: list[int],
    durable: bool,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
    raw: Path | None,
) -> None:
    """Measure latency of the policies at a fixed rate.

    Documents arrive in an open loop: latency counts from the time at which a document is due. By
    default this takes four to five minutes. Each of three rounds has a run of eight seconds for the
    floor and for each policy with each snapshot interval. Runs with durable inputs and outputs have
    only the longest interval. Figures are medians over the rounds; `max` is the largest latency in
    all rounds.

    `micro-batch` is the same flow on Spark, which checkpoints every batch; it needs half a minute
    to warm up.
    """
    if documents <= warmup:
        raise click.UsageError(
            f"with a warm-up of {warmup}, {documents} documents leave nothing to measure: "
            "give more --documents or a smaller --warmup"
        )

    from driftline.bench.experiments.comparison import latencies_of, measure_latency, write_raw
    from driftline.bench.experiments.pictures import draw_latency
    from driftline.bench.experiments.rounds import Setup
    from driftline.bench.measuring.loops import measure_sync_ms
    from driftline.bench.systems.cases import cases

    all_cases = cases(policies, snapshot_intervals, max(snapshot_intervals) if durable else None)
    setup = Setup(corpus.load(documents), nodes)
    sync_ms = measure_sync_ms()
    rounds = measure_latency(setup, all_cases, rate, warmup, seed, repeat, Console(stderr=True))
    report = latencies_of(setup, all_cases, rate, rounds, sync_ms)
    _show(json_file, report.as_json(), report.tables())
    draw_latency(report, plot)
    if raw is not None:
        write_raw(raw, rounds.runs)
        click.echo(f"raw records: {raw}")
    _report_problems(report.problems(), plot)


@bench.command()
@options.documents(15_000, "Documents of each run.")
@options.repeat
@options.nodes(2)
@options.policies(",".join(POLICIES))
@options.snapshot_intervals("1000")
@options.durable(False)
@corpus_options
@json_option
@plot_option("out/throughput.png")
def throughput(
    documents: int,
    repeat: int,
    nodes: int,
    policies: list[str],
    snapshot_intervals: list[int],
    durable: bool,
    corpus: Corpus,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Measure throughput at full speed.

    By default this takes about four minutes. For each policy the table has the median, minimum and
    maximum over the rounds. `micro-batch`, the same flow on Spark, gets at most 600 documents.
    """
    from driftline.bench.experiments.comparison import measure_throughput, throughputs_of
    from driftline.bench.experiments.pictures import draw_throughput
    from driftline.bench.experiments.rounds import Setup
    from driftline.bench.systems.cases import cases

    all_cases = cases(policies, snapshot_intervals, max(snapshot_intervals) if durable else None)
    setup = Setup(corpus.load(documents), nodes)
    rounds = measure_throughput(setup, all_cases, repeat, Console(stderr=True))
    report = throughputs_of(setup, all_cases, rounds)
    _show(json_file, report.as_json(), report.tables())
    draw_throughput(report, plot)
    _report_problems(report.problems(), plot)


@bench.command()
@click.option("--nodes", default="1,2,3", show_default=True, metavar="N,N",
              callback=options.parse_positive_integers,
              help="Numbers of node processes.")  # fmt: skip
@click.option("--rates", default="50,200,500", show_default=True, metavar="R,R",
              callback=options.parse_positive_integers, help="Documents a second.")  # fmt: skip
@click.option("--seconds", default=8.0, show_default=True, type=FiniteRange(0.1),
              help="Duration of each rate; the first quarter is warm-up.")  # fmt: skip
@click.option("--saturated", "saturated_documents", default=8000, show_default=True,
              type=click.IntRange(0),
              help="Documents of each saturated run, sent as fast as possible; 0: no such runs.",
              )  # fmt: skip
@corpus_options
@options.seed
@json_option
@plot_option("out/ordering.png")
def ordering(
    nodes: list[int],
    rates: list[int],
    seconds: float,
    saturated_documents: int,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Compare speculative and buffered ordering, under exactly-once.

    By default this takes about four minutes. Speculation applies elements at once, and undoes later
    ones for an out-of-order element; buffering waits until all earlier elements have arrived.
    """
    if min(rates) * seconds < 10:
        raise click.UsageError(
            f"{seconds:g} s at {min(rates)} documents a second are too few documents: give at "
            "least 10, by --seconds or --rates"
        )

    from driftline.bench.experiments.ordering import draw_ordering, measure_ordering

    documents = corpus.load(max(saturated_documents, round(max(rates) * seconds)))
    report = measure_ordering(
        documents, nodes, rates, seconds, saturated_documents, seed, Console(stderr=True)
    )
    _show(json_file, report.as_json(), report.tables())
    draw_ordering(report.rows, plot)
    _report_problems(report.problems(), plot)


@bench.command()
@click.option("--killed", default=",".join(VICTIMS), show_default=True, metavar="A,B",
              callback=options.choice_list(VICTIMS, "victim"),
              help="node: one node is killed. all: the master and all nodes at once.",
              )  # fmt: skip
@click.option("--trials", default=9, show_default=True, type=click.IntRange(1, 1000),
              help="Trials per case, each a kill in a new cluster.")  # fmt: skip
@click.option("--rate", default=50.0, show_default=True, type=FiniteRange(10, 1000),
              help="Documents per second, at even intervals.")  # fmt: skip
@click.option("--snapshot-interval-ms", "interval_ms", default=1000, show_default=True,
              type=click.IntRange(10, 60_000), help="Interval between snapshots.")  # fmt: skip
@options.nodes(2)
@corpus_options
@options.seed
@json_option
@plot_option("out/recovery.png")
def recovery(
    killed: list[str],
    trials: int,
    rate: float,
    interval_ms: int,
    nodes: int,
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Measure the recovery time after kill -9, under exactly-once.

    The recovery time ends with the first new output. It is split into detection, restart, restore
    and replay. By default this takes three minutes: each of nine rounds has a trial of about ten
    seconds for each value of --killed. The picture shows the latency of documents before and after
    the kill, counted from the time at which they are due.
    """
    from driftline.bench.experiments.recovery import (
        Kill,
        documents_needed,
        draw_recovery,
        measure_recovery,
    )

    documents = corpus.load(documents_needed(rate, interval_ms))
    kills = [Kill(victim) for victim in killed]
    report = measure_recovery(
        documents, kills, trials, rate, interval_ms, nodes, seed, Console(stderr=True)
    )
    _show(json_file, report.as_json(), report.tables())
    draw_recovery(report, plot)
    _report_problems(report.problems(), plot)


@bench.command()
@options.documents(20_000, "Documents that are in the index before the load begins.")
@click.option("--rate", default=50.0, show_default=True, type=FiniteRange(0, 10_000),
              help="Documents a second, arriving as a Poisson process.")  # fmt: skip
@click.option("--searches", default=50.0, show_default=True, type=FiniteRange(0, 10_000),
              help="Queries per second, arriving as a Poisson process.")  # fmt: skip
@click.option("--seconds", default=30.0, show_default=True, type=FiniteRange(0.5),
              help="Duration of the load, after a warm-up of up to 2 seconds.")  # fmt: skip
@click.option("--searchers", default=1, show_default=True, type=click.IntRange(1, 64),
              help="Shards of the index, one process each.")  # fmt: skip
@options.nodes(1)
@click.option("--compare", is_flag=True,
              help="Also give the same load to tantivy and SQLite FTS5.")  # fmt: skip
@click.option("--locust", "users", type=click.IntRange(2, 100_000), metavar="USERS",
              help="Number of locust users that make the load, instead of --rate and --searches. "
              "One of them follows the changes; each other one starts a task per second.",
              )  # fmt: skip
@click.option("--url", metavar="URL", help="With --locust: URL of a running service.")
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
    corpus: Corpus,
    seed: int,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Measure freshness and query latency of `driftline serve`.

    By default this takes a minute, and with --compare three. Freshness is the time from the due
    time of a document until a query returns it. All latencies count from the due time.
    """
    if users is not None:
        refuse_options(["--compare", "--plot", "--rate", "--searches", "--seed"], "with --locust")
        if find_spec("locust") is None:
            raise Unavailable("--locust needs locust: pip install 'driftline[bench]'")
        from driftline.bench.experiments.users import run_users, serve_and_run_users

        if url is not None:
            refuse_options(
                ["--documents", "--nodes", "--searchers"], "with --url: the service runs already"
            )
            usage = run_users(url, users, seconds)
        else:
            usage = serve_and_run_users(corpus.load(documents), nodes, searchers, users, seconds)
        _show(json_file, usage.as_json(), usage.tables())
        _report_problems(usage.problems())
        return
    if url is not None:
        raise click.UsageError("--url is for --locust")

    from driftline.bench.experiments.service import draw_services, measure_services
    from driftline.bench.measuring.load import LoadParameters

    parameters = LoadParameters(documents, rate, searches, seconds, seed)
    load = parameters.load(corpus.load(parameters.documents_needed))
    report = measure_services(parameters, load, nodes, searchers, compare, Console(stderr=True))
    _show(json_file, report.as_json(), report.tables())
    draw_services(report, plot)
    _report_problems(report.problems(), plot)


@bench.command()
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(1),
              help="Records of each throughput run.")  # fmt: skip
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1, 100),
              help="Rounds; each measures everything. Figures are medians.")  # fmt: skip
@options.nodes(2)
@click.option("--rate", default=100.0, show_default=True, type=FiniteRange(10, 10_000),
              help="Records a second of the latency runs, at even intervals.")  # fmt: skip
@click.option("--seconds", default=10.0, show_default=True, type=FiniteRange(1),
              help="Duration of each latency run; the first fifth is warm-up.")  # fmt: skip
@json_option
def windows(
    records: int, repeat: int, nodes: int, rate: float, seconds: float, json_file: Path | None
) -> None:
    """Measure throughput of windows, and latency of their results.

    By default this takes two minutes on idle cores. `Sum` in windows of a minute is compared with
    the same sum by a hand-written stateful function (`scan`), and with a bare loop: processes in
    plain Python, without an engine, that exchange records and keep sums in a dict.
    """
    from driftline.bench.experiments.windows import measure_windows

    report = measure_windows(records, repeat, nodes, rate, seconds, Console(stderr=True))
    _show(json_file, report.as_json(), report.tables())
    _report_problems(report.problems())
