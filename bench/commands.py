"""The commands `driftline bench ...`: options, progress, and where results go.

The experiments are modules of their own (`bench.latency`, `bench.throughput`, `bench.ordering`,
`bench.profile`); they and what they need are imported when a command runs, so that `--help` is
quick and a missing package is told in one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

from driftline.bench import options
from driftline.engine.errors import InputError, Unavailable
from driftline.engine.policy import ORDERINGS, POLICIES
from driftline.pipeline.options import wide_console

LATENCY_DOCUMENTS = 450
THROUGHPUT_DOCUMENTS = 15_000


@click.group()
def bench() -> None:
    """Measure Driftline's inverted index, next to the floor.

    The floor is the same job with no guarantees, as fast as Python does it. Whatever else the
    machine does while a benchmark runs is in its figures.
    """
    missing = [name for name in ("matplotlib", "psutil") if find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"the benchmark needs {' and '.join(missing)}: pip install 'driftline[bench]'"
        )


@bench.command()
@options.rate
@options.documents(LATENCY_DOCUMENTS, "Documents of each run, with the warm-up.")
@options.warmup
@options.repeat(2)
@options.nodes
@options.policies
@options.checkpoints("50,500,1000")
@options.ordering
@options.input
@options.seed
@options.json
@options.plot("out/latency.png")
@options.raw
def latency(
    rate: float,
    documents: int,
    warmup: int,
    repeat: int,
    nodes: int,
    policies: list[str],
    checkpoints: list[int],
    ordering: str,
    path: Path | None,
    seed: int,
    json_file: Path | None,
    plot: Path,
    raw: Path | None,
) -> None:
    """Latency of every policy at a fixed rate.

    As it stands this takes four to five minutes: in each round a run of ten seconds for each policy
    and checkpoint interval. A row is about the runs of all rounds. `micro-batch` is the same flow
    on Spark, which checkpoints every batch; half a minute goes by until it is warm.
    """
    _check_warmup(documents, warmup)

    from driftline.bench.cases import Progress, Setup, broken_promises, cases
    from driftline.bench.figures import draw_latency
    from driftline.bench.latency import latencies_of, measure_latency, runs_of
    from driftline.bench.raw import write_raw

    rows = cases(policies, checkpoints)
    setup = Setup(_load(documents, path), nodes, ordering)
    progress = Progress(Console(stderr=True), len(runs_of(rows, repeat)))
    runs = measure_latency(setup, rows, rate, warmup, seed, repeat, progress)
    latencies = latencies_of(setup, rows, rate, runs)
    _write(json_file, latencies.as_json())
    wide_console().print(latencies.table())
    draw_latency(latencies, plot)
    click.echo(f"picture: {plot}")
    if raw is not None:
        write_raw(raw, runs)
        click.echo(f"raw records: {raw}")
    _judge(broken_promises(latencies.rows))


@bench.command()
@options.documents(THROUGHPUT_DOCUMENTS, "Documents of each run.")
@options.repeat(3)
@options.nodes
@options.policies
@options.checkpoints("1000")
@options.ordering
@options.input
@options.json
@options.plot("out/throughput.png")
def throughput(
    documents: int,
    repeat: int,
    nodes: int,
    policies: list[str],
    checkpoints: list[int],
    ordering: str,
    path: Path | None,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Documents a second of every policy, under back-pressure.

    As it stands this takes about four minutes. Figures are medians over the rounds; what a policy
    makes of the floor's throughput is the median of the shares in each round. `micro-batch`, the
    same flow on Spark, is sent 600 documents at most.
    """

    from driftline.bench.cases import Progress, Setup, broken_promises, cases
    from driftline.bench.figures import draw_throughput
    from driftline.bench.throughput import measure_throughput

    rows = cases(policies, checkpoints)
    setup = Setup(_load(documents, path), nodes, ordering)
    progress = Progress(Console(stderr=True), repeat * (1 + len(rows)))
    rounds = measure_throughput(setup, rows, repeat, progress)
    throughputs = rounds.throughputs()
    _write(json_file, throughputs.as_json())
    wide_console().print(throughputs.table(), rounds.spread())
    draw_throughput(throughputs, plot)
    click.echo(f"picture: {plot}")
    _judge(broken_promises(throughputs.rows))


@bench.command()
@click.option("--nodes", default="1,2,3", show_default=True, metavar="N,N",
              callback=options.whole_numbers, help="Numbers of node processes.")  # fmt: skip
@click.option("--rates", default="50,200,500", show_default=True, metavar="R,R",
              callback=options.whole_numbers, help="Documents a second.")  # fmt: skip
@click.option("--seconds", default=8.0, show_default=True, type=click.FloatRange(0.1),
              help="How long each rate is kept up; the first quarter is warm-up.")  # fmt: skip
@click.option("--saturated", default=8000, show_default=True, type=click.IntRange(0),
              help="Documents of the runs that go as fast as they can; 0 for no such runs.",
              )  # fmt: skip
@options.input
@options.seed
@options.json
@options.plot("out/ordering.png")
def ordering(
    nodes: list[int],
    rates: list[int],
    seconds: float,
    saturated: int,
    path: Path | None,
    seed: int,
    json_file: Path | None,
    plot: Path,
) -> None:
    """Speculative against buffered ordering, under exactly-once.

    As it stands this takes about four minutes. Speculation applies elements as they come and puts
    late ones into their place; buffering waits until nothing can come late.
    """
    if min(rates) * seconds < 10:
        raise click.UsageError(
            f"{seconds:g} s at {min(rates)} documents a second are too few documents: give at "
            "least 10, by --seconds or --rates"
        )

    from driftline.bench.cases import Progress
    from driftline.bench.ordering import as_json, draw, loads, measure_ordering, table

    documents = _load(max(saturated, round(max(rates) * seconds)), path)
    load = loads(documents, rates, seconds, saturated)
    progress = Progress(Console(stderr=True), len(nodes) * len(load) * len(ORDERINGS))
    rows = measure_ordering(load, nodes, seed, progress)
    _write(json_file, as_json(rows))
    wide_console().print(table(rows))
    draw(rows, plot)
    click.echo(f"picture: {plot}")
    _judge(
        f"{row.ordering} has lost {row.lost} records and delivered {row.duplicated} twice"
        for row in rows
        if row.lost or row.duplicated
    )


@bench.command()
@options.rate
@options.documents(LATENCY_DOCUMENTS, "Documents of the latency run, with the warm-up.")
@options.warmup
@click.option("--saturated", default=THROUGHPUT_DOCUMENTS, show_default=True,
              type=click.IntRange(1), help="Documents of the throughput run.")  # fmt: skip
@options.nodes
@options.input
@options.seed
@options.json
def floor(
    rate: float,
    documents: int,
    warmup: int,
    saturated: int,
    nodes: int,
    path: Path | None,
    seed: int,
    json_file: Path | None,
) -> None:
    """The floor alone: its latency and its throughput."""
    _check_warmup(documents, warmup)

    from driftline.bench.floor import run_floor_latency, run_floor_throughput
    from driftline.bench.report import Latencies, Throughputs

    found = _load(max(documents, saturated), path)
    slow = run_floor_latency(found[:documents], rate, warmup, nodes, seed)
    fast = run_floor_throughput(found[:saturated], nodes)
    results = Latencies(rate, documents, nodes, slow, []), Throughputs(saturated, nodes, fast, [])
    _write(json_file, {"latency": results[0].as_json(), "throughput": results[1].as_json()})
    wide_console().print(results[0].table(), results[1].table())


@bench.command()
@options.documents(20_000, "Documents of the index.")
@click.option("--seconds", default=300.0, show_default=True, type=click.FloatRange(10.0),
              help="How long words are counted.")  # fmt: skip
@options.nodes
@options.input
@options.seed
@options.json
def memory(
    documents: int,
    seconds: float,
    nodes: int,
    path: Path | None,
    seed: int,
    json_file: Path | None,
) -> None:
    """Memory of the nodes: of a large index, and of five minutes with a fixed vocabulary.

    The second must not grow once it has begun; `growth` is the last tenth of the time against the
    end of the first fifth.
    """

    from driftline.bench.memory import measure_memory

    found = measure_memory(_load(documents, path), nodes, seconds, seed)
    _write(json_file, found.as_json())
    wide_console().print(found.table())


@bench.command()
@click.option("--policy", default="exactly-once", show_default=True,
              type=click.Choice(list(POLICIES)), help="What is guaranteed.")  # fmt: skip
@options.documents(6_000, "Documents that are sent through.")
@click.option("--block", default=12, show_default=True, type=click.IntRange(1),
              help="Documents in a frame: 1 at low rates, about 12 under load.")  # fmt: skip
@click.option("--snapshot-every", default=2000, show_default=True, type=click.IntRange(1),
              help="Documents from one snapshot to the next.")  # fmt: skip
@options.input
@options.json
def profile(
    policy: str,
    documents: int,
    block: int,
    snapshot_every: int,
    path: Path | None,
    json_file: Path | None,
) -> None:
    """Where the time goes: CPU time of each step of the data path.

    The parts of a node run in this process, with a clock between the steps; ZeroMQ and waiting are
    not in it. For a whole process while it runs use py-spy: `py-spy top --pid PID`, with the ids of
    the processes `deploy.host.process` of a `driftline run` or `driftline bench`.
    """

    from driftline.bench.profile import profile_path

    found = profile_path(_load(documents, path), policy, block, snapshot_every)
    _write(json_file, found.as_json())
    wide_console().print(found.table())


def _load(count: int, path: Path | None) -> list[tuple[str, str]]:
    from driftline.bench.corpus import load_documents

    try:
        documents = load_documents(count, path)
    except InputError as error:  # a file with no document, or with none that has a word
        raise click.UsageError(f"the documents of {path} hold no word: {error}") from None
    if not any(re.search(r"\w", text) for _, text in documents):
        raise click.UsageError(f"the first {count} documents of {path} hold no word")
    return documents


def _check_warmup(documents: int, warmup: int) -> None:
    if documents <= warmup:
        raise click.UsageError(
            f"with a warm-up of {warmup}, {documents} documents leave nothing to measure: "
            "give more --documents or a smaller --warmup"
        )


def _write(file: Path | None, content: dict[str, object]) -> None:
    if file is not None:
        file.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def _judge(problems: Iterable[str]) -> None:
    """End with status 1 if there is a problem."""
    found = list(problems)
    for problem in found:
        click.echo(f"driftline: {problem}", err=True)
    if found:
        click.get_current_context().exit(1)
