"""The options that `driftline spark` commands have in common, and the session that they tell of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click
from rich.console import Console

from driftline.pipeline import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
R = TypeVar("R")


def wide_console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


class Sessions:
    """Starts the session that a command's options describe."""

    def __init__(self, master: str | None, conf: dict[str, str]) -> None:
        self.master = master
        self.conf = conf
        self.console = Console(stderr=True)

    @contextmanager
    def start(self, what: str, *, mostly_python: bool = False) -> Iterator[SparkSession]:
        """A session that shows its progress. Raises Unavailable."""
        from driftline.pipeline.progress import shown
        from driftline.pipeline.session import FRUGAL_JVM, session

        conf = {**FRUGAL_JVM, **self.conf} if mostly_python else self.conf
        with session(what, self.master, conf) as found, shown(found, self.console, what):
            yield found


def _conf(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r}: expected NAME=VALUE")
        settings[name] = value
    return settings


def on_spark(command: Callable[Concatenate[Sessions, P], R]) -> Callable[..., R]:
    """Give a command the options of a session, and what starts one as its first argument."""

    @click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]")
    @click.option("--conf", multiple=True, metavar="NAME=VALUE", callback=_conf,
                  help="A setting of Spark, as spark.driver.memory=8g. Any number of times.",
                  )  # fmt: skip
    @wraps(command)
    def with_session(*args: P.args, **kwargs: P.kwargs) -> R:
        about = Sessions(kwargs.pop("master"), kwargs.pop("conf"))  # type: ignore[arg-type]
        return command(about, *args, **kwargs)

    return with_session


def room(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Find out before a long run whether its results can be written."""
    if file is None:
        return None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot write {file}: {error.strerror}") from None
    if file.is_dir():
        raise click.BadParameter(f"cannot write {file}: it is a directory")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise click.BadParameter(f"cannot write {file}: not permitted")
    return file


def picture(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Find out whether a picture can be drawn and written."""
    from driftline.pipeline.pictures import ENDINGS, check_matplotlib

    if file is not None:
        if file.suffix not in ENDINGS:
            raise click.BadParameter(f"{file} must end in one of {', '.join(ENDINGS)}")
        check_matplotlib()
    return room(ctx, param, file)


flow_argument = click.argument("flow")
input_option = click.option(
    "--input", "inputs", multiple=True, required=True, metavar="[SOURCE=]INPUT",
    help="A file, a pattern or a directory as `driftline run` takes them, or zipf:N for N made-up "
    "documents. Any number of times.",
)  # fmt: skip
output_option = click.option(
    "--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
    help="Directory for the outputs, one JSON object a line.",
)  # fmt: skip
json_option = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", callback=room,
    help="Write the result, for machines.",
)  # fmt: skip
plot_option = click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", callback=picture,
    help="Draw a picture: .png, .svg or .pdf.",
)  # fmt: skip
partitions_option = click.option(
    "--partitions", default=PARTITIONS, show_default=True, type=click.IntRange(1),
    help="Ranges of key groups; the state of one has to fit into a task's memory.",
)  # fmt: skip


def reading(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options that say how inputs are read."""
    for option in (
        click.option("--sections", is_flag=True, help="Split wiki pages into their sections."),
        click.option("--text-field", metavar="NAME", help="Field that holds a record's text."),
        click.option("--id-field", metavar="NAME", help="Field that holds a record's id."),
        click.option("--on-error", default="stop", show_default=True,
                     type=click.Choice(["stop", "dead-letter"]),
                     help="What becomes of bad records and of elements whose function raises."),
    ):  # fmt: skip
        command = option(command)
    return command
