"""The option `--metrics`, of commands that run processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from driftline.deploy.host.metrics.endpoint import Endpoint
from driftline.engine.errors import FlowError

_Command = TypeVar("_Command", bound=Callable[..., object])


def metrics_option(text: str) -> Callable[[_Command], _Command]:
    """The option, with what it serves here."""
    return click.option("--metrics", default="", metavar="HOST:PORT", callback=_endpoint, help=text)


def _endpoint(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """What `--metrics` is given. Raises BadParameter if it has another form."""
    try:
        if given:
            Endpoint.of(given)
    except FlowError as error:
        raise click.BadParameter(str(error)) from None
    return given
