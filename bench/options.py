"""Common options of the `driftline bench` commands, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from msgspec import Struct

from driftline.bench.systems.cases import CHOICES, MICRO_BATCH
from driftline.connectors.files.generated import words_of_text
from driftline.engine.errors import InputError
from driftline.engine.policy import POLICIES
from driftline.engine.sources.record import RecordFormat
from driftline.engine.ui.options import check_writable, reading_options
from driftline.pipeline.session import check_spark

if TYPE_CHECKING:
    from driftline.bench.measuring.corpus import Documents

Command = TypeVar("Command", bound=Callable[..., object])
R = TypeVar("R")


class Corpus(Struct, frozen=True):
    """A file of documents (None: the sample), and the format of its records."""

    path: Path | None
    record_format: RecordFormat

    def load(self, count: int) -> Documents:
        """Return the first `count` documents. Raises UsageError if they contain no word."""
        from driftline.bench.measuring.corpus import load_documents

        try:
            documents = load_documents(count, self.path, self.record_format)
        except InputError as error:
            raise click.UsageError(f"the documents of {self.path} hold no word: {error}") from None
        if not any(words_of_text(text) for _, text in documents):
            raise click.UsageError(f"the first {count} documents of {self.path} hold no word")
        return documents


def corpus_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for documents to a command, as an argument `corpus` of type Corpus."""

    @click.option(
        "--input",
        "path",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Documents to index.  [default: sections of Wikipedia articles]",
    )
    @reading_options(in_sections=True)
    @wraps(command)
    def with_corpus(path: Path | None, record_format: RecordFormat, **arguments: object) -> R:
        return command(corpus=Corpus(path, record_format), **arguments)

    return with_corpus


def choice_list(
    choices: tuple[str, ...], what: str
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a callback that parses a list of choices like "a,b", or "all", for all of them.

    `what`: the kind of choice, for errors.
    """

    def parse(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
        if value == "all" and "all" not in choices:
            return list(choices)
        names = [name.strip() for name in value.split(",")]
        for name in names:
            if name not in choices:
                known = ", ".join(choices)
                raise click.BadParameter(f"unknown {what} {name!r}; choose one of {known}")
        return list(dict.fromkeys(names))

    return parse


def _parse_policies(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    names = choice_list(CHOICES, "policy")(ctx, param, value)
    if MICRO_BATCH in names:  # fail before the long runs if Spark is missing
        check_spark()
    return names


def parse_positive_integers(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    """Parse a list of positive integers like "50,500"; drop repetitions. Raises BadParameter."""
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers from 1 on, like 50,500")
    return list(dict.fromkeys(numbers))


def _check_empty_directory(
    ctx: click.Context, param: click.Parameter, directory: Path | None
) -> Path | None:
    if directory is not None:
        check_writable(ctx, param, directory / "records")
        if any(directory.iterdir()):
            raise click.BadParameter(f"{directory} holds files already: give another, or remove it")
    return directory


def documents(default: int, help: str) -> Callable[[Command], Command]:
    """Return the option for the number of documents."""
    return click.option(
        "--documents", default=default, show_default=True, type=click.IntRange(1), help=help
    )


def snapshot_intervals(default: str) -> Callable[[Command], Command]:
    """Return the option for the snapshot intervals."""
    return click.option(
        "--snapshot-intervals",
        default=default,
        show_default=True,
        metavar="MS,MS",
        callback=parse_positive_integers,
        help="Intervals between snapshots, in ms.",
    )


def policies(default: str) -> Callable[[Command], Command]:
    """Return the option for the policies to compare."""
    return click.option(
        "--policies",
        default=default,
        show_default=True,
        metavar="A,B",
        callback=_parse_policies,
        help=f"Policies: {', '.join(POLICIES)}, and {MICRO_BATCH}, which needs driftline[spark] "
        "and Java; or all.",
    )


def durable(default: bool) -> Callable[[Command], Command]:
    """Return the option that adds cases with durable inputs and outputs (`systems.cases`)."""
    return click.option(
        "--durable/--no-durable",
        default=default,
        show_default=True,
        help="Also measure with durable inputs and outputs, at the longest snapshot interval: a "
        "document is on disk before its outputs are sent, and an output counts once it is on disk.",
    )


def nodes(default: int) -> Callable[[Command], Command]:
    """Return the option for the number of nodes."""
    return click.option(
        "--nodes",
        default=default,
        show_default=True,
        type=click.IntRange(1, 64),
        help="Node processes.",
    )


repeat = click.option(
    "--repeat",
    default=3,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Rounds; each measures the floor and all policies. Figures are medians.",
)
warmup = click.option(
    "--warmup",
    default=200,
    show_default=True,
    type=click.IntRange(0),
    help="Documents at the beginning that are sent but not measured.",
)
seed = click.option(
    "--seed", default=0, show_default=True, help="Random seed of the arrival times."
)
raw = click.option(
    "--raw",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    callback=_check_empty_directory,
    help="Directory for the latency of every document, for `driftline spark latency`.",
)
