"""The common options of the `driftline spark` commands, and the session that they describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Console

from driftline.pipeline import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")


class Sessions:
    """Starts the session that a command's options describe."""

    def __init__(self, master: str | None, conf: dict[str, str]) -> None:
        self.master = master
        self.conf = conf
        self.console = Console(stderr=True)

    @contextmanager
    def start(self, name: str, *, mostly_python: bool = False) -> Iterator[SparkSession]:
        """A session that shows its progress. `mostly_python`: the JVM only moves rows.

        Raises Unavailable if Spark does not start.
        """
        from driftline.pipeline.spark.progress import shown
        from driftline.pipeline.spark.session import FRUGAL_JVM, session

        conf = {**FRUGAL_JVM, **self.conf} if mostly_python else self.conf
        with session(name, self.master, conf) as spark, shown(spark, self.console, name):
            yield spark


def _conf(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r}: expected NAME=VALUE")
        settings[name] = value
    return settings


def on_spark(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of a session, as an argument `sessions` of type Sessions."""

    @click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]")
    @click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_conf,
        help="A setting of Spark, such as spark.driver.memory=8g. Any number of times.",
    )
    @wraps(command)
    def with_sessions(master: str | None, conf: dict[str, str], **others: object) -> R:
        return command(sessions=Sessions(master, conf), **others)

    return with_sessions


partitions_option = click.option(
    "--partitions",
    default=PARTITIONS,
    show_default=True,
    type=click.IntRange(1),
    help="Number of ranges of key groups; the state of one has to fit into a task's memory.",
)
