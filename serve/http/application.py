"""The HTTP application of a service: its own operations, and those that all services have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp

from driftline.serve.errors import ApiError
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.content import HTTP_STATUS, INTERNAL, dumps, error_response, json_answer
from driftline.serve.http.metrics import BackendCollector, MeasuredApp
from driftline.serve.http.openapi import description
from driftline.serve.http.operations import (
    REQUEST_LOG_KEY,
    AppState,
    Body,
    Call,
    HttpSettings,
    Operation,
    RequestLog,
    routes,
)
from driftline.serve.http.parameters import LABEL_REF
from driftline.serve.views.tokens import token_of

VERSION = "1"
"""The version of the HTTP interface."""

STALLED_AFTER_S = 5.0
"""A service whose writes wait for more than this many seconds without progress is not ready."""

ReadinessCheck = Callable[[], Awaitable[None]]
"""Readiness check: returns if the views answer, and raises ApiError otherwise."""

_OK = Body({"type": "object", "properties": {"at": LABEL_REF}, "required": ["at"]})


def build(
    title: str,
    text: str,
    operations: Sequence[Operation],
    backend: Backend,
    ready: ReadinessCheck,
    settings: HttpSettings,
    pages: Iterable[BaseRoute] = (),
    metric_help: Mapping[str, str] | None = None,
) -> ASGIApp:
    """Build the HTTP application of a service.

    `title`, `text`: title and introduction of the OpenAPI description; `operations`: the service's
    own operations; `pages`: further routes, such as a web page; `metric_help`: help texts of the
    views' figures, by name.
    """
    registry = CollectorRegistry()
    registry.register(BackendCollector(backend, metric_help or {}))
    # Routes are tried in order: the most frequent ones come first.
    described = [*operations, *_common_operations(backend, ready, registry)]
    openapi_json = dumps(description(title, text, VERSION, described))

    async def openapi(call: Call) -> Response:
        return json_answer(openapi_json)

    openapi_operation = Operation(
        "GET",
        "/openapi.json",
        openapi,
        "openapi",
        "This description.",
        right=None,
        answer=Body({"type": "object"}),
    )
    fallback = Starlette(
        routes=list(pages),
        exception_handlers={HTTPException: _routing_error, Exception: _internal_error},  # type: ignore[dict-item]
    )
    # Operations handle their exceptions themselves, so they need no Starlette middleware.
    operation_routes = routes([*described, openapi_operation], AppState(settings))
    fallback.router.redirect_slashes = False
    return MeasuredApp(Router(operation_routes, redirect_slashes=False, default=fallback), registry)


def _common_operations(
    backend: Backend, ready: ReadinessCheck, registry: CollectorRegistry
) -> list[Operation]:
    async def health(call: Call) -> Response:
        return json_answer(dumps({"at": token_of(backend.time)}))

    async def readiness(call: Call) -> Response:
        if backend.stalled_s > STALLED_AFTER_S:
            text = f"writes have waited for {backend.stalled_s:.0f} s, and none was processed"
            raise ApiError("unavailable", text)
        await ready()
        return json_answer(dumps({"at": token_of(backend.time)}))

    async def metrics(call: Call) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    return [
        Operation("GET", "/healthz", health, "health", "The server runs.", right=None, answer=_OK),
        Operation(
            "GET",
            "/readyz",
            readiness,
            "ready",
            "The views answer, and writes are processed.",
            right=None,
            answer=_OK,
        ),
        Operation(
            "GET",
            "/metrics",
            metrics,
            "metrics",
            "Metrics, for Prometheus.",
            answer=Body({"type": "string"}, "text/plain; version=0.0.4"),
        ),
    ]


async def _routing_error(request: Request, error: HTTPException) -> Response:
    path = request.scope["path"][:200]
    if error.status_code == HTTP_STATUS["method"]:
        allowed = (error.headers or {}).get("Allow", "")
        return _answer_error(
            request, ApiError("method", f"method not allowed; use {allowed}"), {"Allow": allowed}
        )
    return _answer_error(
        request, ApiError("path", f"there is no route {path!r}: see /openapi.json")
    )


async def _internal_error(request: Request, error: Exception) -> Response:
    return _answer_error(request, INTERNAL)


def _answer_error(
    request: Request, error: ApiError, headers: Mapping[str, str] | None = None
) -> Response:
    request_log: RequestLog = request.scope[REQUEST_LOG_KEY]
    request_log.code = error.code
    return error_response(error, headers)
