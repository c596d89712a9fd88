"""The command that changes the number of nodes under load: how long nothing comes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import click
from rich.console import Console

import driftline.bench.commands.options as options
from driftline.bench.commands.verdict import judge
from driftline.engine.ui.consoles import wide_console
from driftline.engine.ui.options import FiniteRange, json_option
from driftline.engine.ui.results import write_json


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    parts = [part.strip() for part in value.split(",")]
    if len(parts) < 2 or not all(part.isdecimal() and 1 <= int(part) <= 64 for part in parts):
        raise click.BadParameter(f"{value!r}: give two numbers from 1 to 64 or more, as in 1,3,2")
    numbers = list(map(int, parts))
    if any(before == after for before, after in pairwise(numbers)):
        raise click.BadParameter(f"{value!r}: a number that follows itself is no change")
    return numbers


@click.command()
@click.option("--nodes", default="1,3,2,4", show_default=True, metavar="N,N", callback=_numbers,
              help="Numbers of nodes, one after the other.")  # fmt: skip
@click.option("--state-mb", default=200, show_default=True, type=click.IntRange(1, 20_000),
              help="Size of the state in MB: texts of 1,000 bytes.")  # fmt: skip
@click.option("--rate", default=300.0, show_default=True, type=FiniteRange(1, 100_000),
              help="Records a second, evenly.")  # fmt: skip
@options.seed
@json_option
def rescale(
    nodes: list[int], state_mb: int, rate: float, seed: int, json_file: Path | None
) -> None:
    """Change the number of nodes under load, with much state, under exactly-once.

    Pause: from the last output of the nodes before a change to the first one of the nodes after it.
    The latencies are those of the records that come meanwhile, while the state is copied.
    """
    from driftline.bench.experiments.rescale import measure_rescaling

    found = measure_rescaling(nodes, state_mb, rate, seed, Console(stderr=True))
    write_json(json_file, found.as_json(), indent=2)
    wide_console().print(found.table())
    judge(found.problems())
