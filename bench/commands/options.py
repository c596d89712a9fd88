"""The common options of the `driftline bench` commands, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from driftline.bench.systems.cases import CHOICES, IPC, MICRO_BATCH, TRANSPORTS
from driftline.engine.policy import ORDERINGS, POLICIES
from driftline.engine.ui.options import FiniteRange, writable
from driftline.pipeline.spark.session import check_spark

Command = TypeVar("Command", bound=Callable[..., object])


def _names_of_policies(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    if value == "all":
        return list(CHOICES)
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in CHOICES:
            raise click.BadParameter(f"unknown policy {name!r}; there are {', '.join(CHOICES)}")
    if MICRO_BATCH in names:  # raises before the long runs if there is no Spark
        check_spark()
    return list(dict.fromkeys(names))


def whole_numbers(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    """The numbers of a list like 50,500, without repetitions. Raises BadParameter."""
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers from 1 on, like 50,500")
    return list(dict.fromkeys(numbers))


def _empty(ctx: click.Context, param: click.Parameter, directory: Path | None) -> Path | None:
    if directory is not None:
        writable(ctx, param, directory / "records")
        if any(directory.iterdir()):
            raise click.BadParameter(f"{directory} holds files already: give another, or remove it")
    return directory


def documents(default: int, help: str) -> Callable[[Command], Command]:
    """The number of documents."""
    return click.option(
        "--documents", default=default, show_default=True, type=click.IntRange(1), help=help
    )


def repeat(default: int) -> Callable[[Command], Command]:
    """The number of rounds."""
    return click.option(
        "--repeat",
        default=default,
        show_default=True,
        type=click.IntRange(1, 100),
        help="Rounds; in each, the floor and all policies take their turn. Figures are medians.",
    )


def checkpoints(default: str) -> Callable[[Command], Command]:
    """The checkpoint intervals."""
    return click.option(
        "--checkpoints",
        default=default,
        show_default=True,
        metavar="MS,MS",
        callback=whole_numbers,
        help="Time between checkpoints.",
    )


def policies(default: str) -> Callable[[Command], Command]:
    """The policies to compare."""
    return click.option(
        "--policies",
        default=default,
        show_default=True,
        metavar="A,B",
        callback=_names_of_policies,
        help=f"Policies: {', '.join(POLICIES)}, and {MICRO_BATCH}, which needs driftline[spark] "
        "and Java; or all.",
    )


def durable(default: bool) -> Callable[[Command], Command]:
    """Whether there are rows with durable ends, too."""
    return click.option(
        "--durable/--no-durable",
        default=default,
        show_default=True,
        help="Measure also with durable ends, with the longest checkpoint interval: a document is "
        "on the disk before its outputs leave, and its outputs have arrived once they are on it.",
    )


def _names_of_transports(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in TRANSPORTS:
            known = ", ".join(TRANSPORTS)
            raise click.BadParameter(f"unknown transport {name!r}; there are {known}")
    return list(dict.fromkeys(names))


transports = click.option(
    "--transport",
    "transports",
    default=IPC,
    show_default=True,
    metavar="A,B",
    callback=_names_of_transports,
    help=f"How processes speak: {', '.join(TRANSPORTS)}; with several, a row for each. The floor "
    "and durable ends have ipc.",
)
rate = click.option(
    "--rate",
    default=100.0,
    show_default=True,
    type=FiniteRange(0.1, 100_000),
    help="Documents a second, arriving as a Poisson process.",
)
warmup = click.option(
    "--warmup",
    default=200,
    show_default=True,
    type=click.IntRange(0),
    help="Documents at the beginning that are sent but not measured.",
)
nodes = click.option(
    "--nodes", default=2, show_default=True, type=click.IntRange(1, 64), help="Node processes."
)
ordering = click.option(
    "--ordering",
    default="speculative",
    show_default=True,
    type=click.Choice(ORDERINGS),
    help="How exactly-once keeps label order.",
)
seed = click.option("--seed", default=0, show_default=True, help="Decides when documents arrive.")
raw = click.option(
    "--raw",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    callback=_empty,
    help="Directory for a record of every document, for `driftline spark latency`.",
)
