"""Options that commands share which run processes: for log lines, and for metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console

from driftline.deploy.host.logs import LEVELS, log_to
from driftline.deploy.host.metrics.endpoint import Endpoint
from driftline.engine.errors import DriftlineError, FlowError
from driftline.engine.events import about, log
from driftline.engine.ui.options import writable
from driftline.engine.ui.results import sentence_of

LOGGED = "--log-level", "--log-json", "--log-file"
"""The options of `logged`."""

_Command = TypeVar("_Command", bound=Callable[..., object])


def logged(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for log lines, and an argument `console`, which they go to.

    Errors become lines, too: so a run with `--log-json` prints nothing but JSON, and a log file
    says how it ended.
    """

    @click.option("--log-level", "level", default="info", show_default=True,
                  type=click.Choice(LEVELS),
                  help="Print log lines from this level on.")  # fmt: skip
    @click.option("--log-json", "as_json", is_flag=True,
                  help="Print each log line as a JSON object.")  # fmt: skip
    @click.option("--log-file", "file", type=click.Path(path_type=Path), metavar="FILE",
                  callback=writable,
                  help="Write log lines to this file, too; it is rotated at 10 MiB.")  # fmt: skip
    @wraps(command)
    def with_log(level: str, as_json: bool, file: Path | None, **others: object) -> None:
        console = Console(stderr=True)
        log_to(console, level, as_json, file)
        try:
            command(console=console, **others)
        except BrokenPipeError:
            raise
        except (DriftlineError, OSError) as error:
            log.error("%s", sentence_of(error), extra=about("failed", error=type(error).__name__))
            raise click.exceptions.Exit(1) from None

    return with_log


def metrics_option(text: str) -> Callable[[_Command], _Command]:
    """The option `--metrics` of a command that runs processes, with what it serves here."""
    return click.option("--metrics", default="", metavar="HOST:PORT", callback=_endpoint, help=text)


def _endpoint(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """What `--metrics` is given. Raises BadParameter if it has another form."""
    try:
        if given:
            Endpoint.of(given)
    except FlowError as error:
        raise click.BadParameter(str(error)) from None
    return given
