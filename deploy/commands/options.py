"""Options shared by commands: options for running a flow, for log lines, and for metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console

from driftline.deploy.roles.window import WINDOW, WINDOW_MAX
from driftline.deploy.runtime.logs import LEVELS, log_to
from driftline.deploy.runtime.metrics.endpoint import Endpoint
from driftline.engine.errors import DriftlineError, FlowError
from driftline.engine.events import event_fields, log
from driftline.engine.policy import ORDERINGS, POLICIES
from driftline.engine.ui.options import (
    check_writable,
    on_error_option,
    parse_renamings,
    reading_options,
    refuse_options,
)
from driftline.engine.ui.results import sentence_of

LOGGING_OPTIONS = "--log-level", "--log-json", "--log-file"
"""Flags of the options that `logging_options` adds."""

_Command = TypeVar("_Command", bound=Callable[..., object])


def flow_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for running a flow, locally or in a cluster.

    The command gets them as keyword arguments: for their names and types, see `commands.run.run`.
    """

    @click.option("--nodes", type=click.IntRange(1, 64),
                  help="Number of node processes.  [default: 1; if a run resumes, its last "
                  "number]")  # fmt: skip
    @click.option("--policy", "policy_name", default="exactly-once", show_default=True,
                  type=click.Choice(list(POLICIES)),
                  help="Delivery guarantee. exactly-once replays deterministically, so outputs do "
                  "not wait for snapshots. For comparison: two-phase is exactly-once as in Flink, "
                  "strong-productions exactly-once as in MillWheel.")  # fmt: skip
    @click.option("--ordering", default="speculative", show_default=True,
                  type=click.Choice(ORDERINGS),
                  help="How exactly-once keeps elements in order: speculative applies them as they "
                  "arrive, and corrects results before their delivery if an element was out of "
                  "order; buffered waits until the order is certain.",
                  )  # fmt: skip
    @click.option("--snapshot-interval-ms", default=1000, show_default=True,
                  type=click.IntRange(1, 3_600_000), help="Interval between snapshots.",
                  )  # fmt: skip
    @on_error_option()
    @reading_options()
    @click.option("--from-savepoint", "start", type=click.Path(path_type=Path), metavar="DIR",
                  help="Start with the state of a savepoint, at the first record that it does not "
                  "contain.")  # fmt: skip
    @click.option("--drop-state", "drop", multiple=True, metavar="NAME",
                  help="With --from-savepoint: discard the state of operator NAME, even if it is "
                  "no longer in the flow; OPERATOR.STATE: only one of its states. Any number of "
                  "times.")  # fmt: skip
    @click.option("--rename-state", "rename", multiple=True, metavar="OLD=NEW",
                  callback=parse_renamings,
                  help="With --from-savepoint: the operator or source OLD of the savepoint is NEW "
                  "in the flow. Any number of times.")  # fmt: skip
    @click.option("--accept-changed-code", is_flag=True,
                  help="Resume although the code of operators has changed. Existing state and "
                  "outputs are kept.",
                  )  # fmt: skip
    @click.option("--max-in-flight", type=click.IntRange(1),
                  show_default=f"{WINDOW} to {WINDOW_MAX}, more if records cost less time",
                  help="Maximum number of records in flight per source (back-pressure).",
                  )  # fmt: skip
    @wraps(command)
    def with_flow(start: Path | None, **others: object) -> None:
        if start is None:
            reason = "without --from-savepoint: they apply to the states of a savepoint"
            refuse_options(["--drop-state", "--rename-state"], reason)
        command(start=start, **others)

    return with_flow


def logging_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for log lines, and an argument `console`.

    This is the console of stderr, to which log lines go. If the command raises a DriftlineError or
    an OSError, the error is logged, too, and the exit status is 1. So a run with `--log-json`
    prints only JSON, and a log file shows how the run ended.
    """

    @click.option("--log-level", "level", default="info", show_default=True,
                  type=click.Choice(LEVELS),
                  help="Lowest level of log lines to print.")  # fmt: skip
    @click.option("--log-json", "as_json", is_flag=True,
                  help="Print each log line as a JSON object.")  # fmt: skip
    @click.option("--log-file", "file", type=click.Path(path_type=Path), metavar="FILE",
                  callback=check_writable,
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
            log.error(
                "%s", sentence_of(error), extra=event_fields("failed", error=type(error).__name__)
            )
            raise click.exceptions.Exit(1) from None

    return with_log


def metrics_option(text: str) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command the option `--metrics`; `text`: its help."""
    return click.option("--metrics", default="", metavar="HOST:PORT", callback=_endpoint, help=text)


def _endpoint(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Check the value of `--metrics`, and return it unchanged. Raises BadParameter."""
    try:
        if value:
            Endpoint.parse(value)
    except FlowError as error:
        raise click.BadParameter(str(error)) from None
    return value
