"""The options of a command that logs: which lines are printed, in which form, and where else.

Errors become lines, too: so a run with `--log-json` prints nothing but JSON, and a log file says
how it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click
from rich.console import Console

from driftline.deploy.host.logs import LEVELS, log_to
from driftline.engine.errors import DriftlineError
from driftline.engine.events import about, log
from driftline.engine.raised import reason_of
from driftline.engine.ui.options import writable


def logged(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for log lines, and an argument `console`, which they go to."""

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
            text = reason_of(error) if isinstance(error, OSError) else str(error)
            log.error("%s", text, extra=about("failed", error=type(error).__name__))
            raise click.exceptions.Exit(1) from None

    return with_log
