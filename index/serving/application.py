"""What a service of an index has beside its flow: the view, and what HTTP clients see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp

from driftline.index.http.application import application
from driftline.index.http.page.routes import page_routes
from driftline.index.serving.definition import VIEW, schema_in
from driftline.serve.gateway.backend import Backend
from driftline.serve.hosting.config import ViewSpec
from driftline.serve.http.operations import Settings

_MAKE = "driftline.index.serving.shards:make"
"""By name: the process of the gateway has no need of it."""


def views_of(state: Path, searchers: int) -> tuple[ViewSpec, ...]:
    """The view of an index, in so many shards."""
    return (ViewSpec(VIEW, _MAKE, searchers, {"state": str(state)}),)


def application_of(state: Path, settings: Settings) -> Callable[[Backend], ASGIApp]:
    """Makes the HTTP application of the index in a state directory."""
    return lambda backend: application(backend, schema_in(state), settings, page_routes())
