"""Options that several commands share: each has one name, one help text and one meaning.

An option whose text depends on the command is a function of that text, the others are ready to be
used as decorators. `reading_options` gives a command several options as one value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click

from driftline.engine.errors import Unavailable
from driftline.engine.sources.record import Shape
from driftline.engine.ui.pictures import ENDINGS, check_matplotlib
from driftline.engine.ui.results import make_writable

R = TypeVar("R")
Command = TypeVar("Command", bound=Callable[..., object])


def writable(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Find out before a long run whether its results can be written."""
    if file is not None:
        try:
            make_writable(file)
        except Unavailable as error:
            raise click.BadParameter(str(error)) from None
    return file


def drawable(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Find out before a long run whether a picture can be drawn and written."""
    if file is not None:
        if file.suffix not in ENDINGS:
            raise click.BadParameter(f"{file} must end in one of {', '.join(ENDINGS)}")
        check_matplotlib()
    return writable(ctx, param, file)


flow_argument = click.argument("flow")


def inputs_option(help: str) -> Callable[[Command], Command]:
    """The files that a flow reads, as `inputs`."""
    return click.option(
        "--input", "inputs", multiple=True, required=True, metavar="FILE", help=help
    )


def output_option(help: str) -> Callable[[Command], Command]:
    """The directory that a command writes, as `output`."""
    return click.option(
        "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help=help
    )


def plot_option(default: str | None = None) -> Callable[[Command], Command]:
    """Where the picture goes, as `plot`; without a default there is none unless it is asked for."""
    return click.option(
        "--plot",
        default=default,
        show_default=default is not None,
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=drawable,
        help=f"Draw a picture: {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.",
    )


json_option = click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=writable,
    help="Write the result, for machines.",
)
"""Where the result goes for machines, as `json_file`."""


def _is_dead_letter(ctx: click.Context, param: click.Parameter, chosen: str) -> bool:
    return chosen == "dead-letter"


on_error_option = click.option(
    "--on-error",
    "dead_letters",
    default="stop",
    show_default=True,
    type=click.Choice(["stop", "dead-letter"]),
    callback=_is_dead_letter,
    help="What becomes of bad records and of elements whose function raises.",
)
"""Whether they are set aside, as `dead_letters`."""


def reading_options(*, in_sections: bool = False) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the options that say how rows become records, as one `Shape` named `shape`.

    `in_sections`: wiki pages are split unless --no-sections is given.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @click.option("--id-field", metavar="NAME", help="Field that holds a record's id.")
        @click.option("--text-field", metavar="NAME", help="Field that holds a record's text.")
        @_sections_option(in_sections)
        @wraps(command)
        def with_shape(
            id_field: str | None, text_field: str | None, sections: bool, **others: object
        ) -> R:
            return command(shape=Shape(id_field, text_field, sections), **others)

        return with_shape

    return decorate


def _sections_option(in_sections: bool) -> Callable[[Command], Command]:
    if in_sections:
        return click.option(
            "--sections/--no-sections",
            default=True,
            show_default=True,
            help="Clean wikitext and make each section a document, or leave pages as they are.",
        )
    return click.option("--sections", is_flag=True, help="Split wiki pages into their sections.")
