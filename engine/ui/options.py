"""Options that several commands share: each has one name, one help text and one meaning.

An option that differs between commands, for example in its help text, is a function that returns a
decorator. The other options are decorators. `reading_options` adds several options to a command,
and passes their values as one argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from driftline.engine.errors import Unavailable
from driftline.engine.sources.record import COMMA, UTF_8, RecordFormat
from driftline.engine.ui.pictures import ENDINGS, check_matplotlib
from driftline.engine.ui.results import make_writable, write_json, write_on_error


class FiniteRange(click.FloatRange):
    """Option type: a finite number within bounds. Unlike its base, it rejects nan and inf."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


R = TypeVar("R")
Command = TypeVar("Command", bound=Callable[..., object])


def check_writable(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Check, before a long run, that its results can be written; create the directory.

    Raises BadParameter.
    """
    if file is not None:
        if str(file) == "-":
            raise click.BadParameter("- is not a file; standard output is /dev/stdout")
        try:
            make_writable(file)
        except Unavailable as error:
            raise click.BadParameter(str(error)) from None
    return file


def check_drawable(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Check, before a long run, that a picture can be drawn and written.

    Raises BadParameter, or Unavailable without matplotlib.
    """
    if file is not None:
        if file.suffix not in ENDINGS:
            raise click.BadParameter(f"{file} must end in one of {', '.join(ENDINGS)}")
        check_matplotlib()
    return check_writable(ctx, param, file)


def refuse_empty(command: click.Command) -> None:
    """Make the options and arguments of a command reject an empty text, unless it is the default.

    An empty path would mean the working directory.
    """
    for param in command.params:
        if "type_cast_value" not in vars(param):  # a second call changes nothing
            param.type_cast_value = _cast_nonempty(param)  # type: ignore[method-assign, assignment]


def _cast_nonempty(param: click.Parameter) -> Callable[[click.Context, object], object]:
    cast = param.type_cast_value

    def checked(ctx: click.Context, value: object) -> object:
        values = value if isinstance(value, tuple | list) else (value,)
        if "" in values and param.default != "":
            raise click.BadParameter("the value is empty", ctx, param)
        return cast(ctx, value)

    return checked


def given_options() -> list[str]:
    """Return the options on the command line of the running command, even with default values.

    The result does not contain options from the environment or a configuration file. These apply to
    all calls, and are ignored where they have no meaning.
    """
    context = click.get_current_context()
    return [
        param.opts[0]
        for param in context.command.params
        if isinstance(param, click.Option)
        and param.name is not None
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]


def refuse_options(options: Iterable[str], reason: str) -> None:
    """Raise UsageError if the command line has any of these options, which would be ignored.

    `reason`: the end of the sentence that begins with their names and "cannot be given".
    """
    refused = set(options)
    if given := [name for name in given_options() if name in refused]:
        raise click.UsageError(f"{', '.join(given)} cannot be given {reason}")


def refuse_other_options(options: Iterable[str], reason: str) -> None:
    """Raise UsageError if the command line has other options. `reason`: see `refuse_options`."""
    refuse_options(set(given_options()).difference(options), reason)


flow_argument = click.argument("flow")


def inputs_option(help: str) -> Callable[[Command], Command]:
    """Return the option for a flow's inputs, as the argument `inputs`."""
    return click.option(
        "--input", "inputs", multiple=True, required=True, metavar="[SOURCE=]INPUT", help=help
    )


def output_option(help: str) -> Callable[[Command], Command]:
    """Return the option for a command's output directory, as the argument `output`."""
    return click.option(
        "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help=help
    )


def plot_option(default: str | None = None) -> Callable[[Command], Command]:
    """Return the option for a picture's file, as the argument `plot`. None means no picture."""
    return click.option(
        "--plot",
        default=default,
        show_default=default is not None,
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=check_drawable,
        help=f"Draw a picture: {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.",
    )


def json_option_with(**failed: object) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return the option for the result as a JSON file, as the argument `json_file`.

    While the command runs, there is no file, or an empty one. If the command fails, the file
    contains the text of the error as `error`, and the fields `failed`. If an argument is wrong, the
    file has only `error` (`write_usage_error`). The command writes no file after an unknown option,
    or if a signal ends the process at once.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @click.option(
            "--json",
            "json_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            callback=check_writable,
            is_eager=True,  # parsed first, for `write_usage_error`
            help="Write a summary of the result to FILE, as JSON.",
        )
        @wraps(command)
        def with_file(json_file: Path | None, **others: object) -> R:
            with write_on_error(json_file, failed):
                return command(json_file=json_file, **others)

        return with_file

    return decorate


def write_usage_error(error: click.ClickException) -> None:
    """Write an error in a command's arguments to the file that `--json` names, if it was given."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        file = error.ctx.params.get("json_file")
        if isinstance(file, Path):
            with suppress(OSError):  # the usage error matters more
                write_json(file, {"error": error.format_message()})


json_option = json_option_with()
"""`json_option_with` without fields for failures."""


def _is_dead_letter(ctx: click.Context, param: click.Parameter, chosen: str) -> bool:
    return chosen == "dead-letter"


ON_ERROR_HELP = (
    "On a malformed record or an exception in a function: stop the run, or write a dead letter "
    "and continue."
)


def on_error_option(help: str = ON_ERROR_HELP) -> Callable[[Command], Command]:
    """Return the option for writing failures as dead letters, as the argument `dead_letters`."""
    return click.option(
        "--on-error",
        "dead_letters",
        default="stop",
        show_default=True,
        type=click.Choice(["stop", "dead-letter"]),
        callback=_is_dead_letter,
        help=help,
    )


FORMAT_OPTIONS = "--id-field", "--text-field", "--sections", "--encoding", "--delimiter"
"""The options that `reading_options` adds."""


def reading_options(*, in_sections: bool = False) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that adds the options for reading records, as argument `record_format`.

    `in_sections`: whether wiki pages are split into sections by default.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @click.option(
            "--id-field", metavar="NAME", help="Field that becomes the field `id` of each record."
        )
        @click.option(
            "--text-field",
            metavar="NAME",
            help="Field that becomes the field `text` of each record.",
        )
        @_sections_option(in_sections)
        @click.option("--encoding", default=UTF_8, show_default=True, metavar="NAME",
                      help="Encoding of files, except XML. A byte order mark of UTF-16 or UTF-32 "
                      "replaces the default.")  # fmt: skip
        @click.option("--delimiter", default=COMMA, show_default=True, metavar="CHAR",
                      help="Character between values of .csv files; \\t is a tab.")  # fmt: skip
        @wraps(command)
        def with_format(
            id_field: str | None,
            text_field: str | None,
            sections: bool,
            encoding: str,
            delimiter: str,
            **others: object,
        ) -> R:
            delimiter = delimiter.replace(r"\t", "\t")
            try:
                record_format = RecordFormat(id_field, text_field, sections, encoding, delimiter)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            return command(record_format=record_format, **others)

        return with_format

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


def parse_renamings(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Parse the values of `--rename-state` to (old, new) pairs. Raises BadParameter."""
    pairs = []
    for text in given:
        old, _, new = text.partition("=")
        if not (old and new):
            raise click.BadParameter(
                f"expected OLD=NEW, two names of operators or sources, not {text!r}"
            )
        pairs.append((old, new))
    return tuple(pairs)
