"""Metrics: figures of a service's parts, and durations of requests, for Prometheus and the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from time import monotonic
from urllib.parse import quote, unquote_to_bytes

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.engine.events import FailureLog, RateLimitedLog, event_fields, log
from driftline.serve.errors import ApiError
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.content import error_response
from driftline.serve.http.operations import REQUEST_LOG_KEY, RequestLog

PREFIX = "driftline_service_"
"""Prefix of the metrics that are figures of a service's parts."""

FIGURES = {
    "records": "Records that the input has accepted since the first start of the service.",
    "waiting": "Of the flow: records that are not durable, or not read yet. "
    "Of a view: reads that are not answered yet.",
    "completed_time": "The label time below which all records are processed.",
    "producers": "Producers that have ever sent records; the gateway is one of them.",
    "nodes": "Nodes of the flow.",
    "outputs": "Outputs that have arrived at the gateway since its start.",
    "delay_p50_s": "Seconds from a record's label time to its output at the gateway: the median "
    "of the last 10 s.",
    "delay_p99_s": "Seconds from a record's label time to its output at the gateway: the 99th "
    "percentile of the last 10 s.",
    "time": "T: all outputs below this label time have arrived at this part.",
    "since": "The smallest T as of which the view still answers.",
    "dead_letters": "Dead letters since the start of the service.",
    "checkpoint": "The T of the view's last checkpoint.",
    "answered": "Questions that the view has answered since its start.",
    "applied": "Outputs that the view has applied since its start.",
    "apply_s": "Seconds that the view has spent on applying outputs since its start.",
    "ask_s": "Seconds that the view has spent on answers since its start.",
    "keys": "Keys of a key-value view.",
    "without_key": "Outputs of a key-value view that have no usable key.",
}
"""The help text of each figure. Other kinds of views pass their own to `BackendCollector`."""

_BUCKETS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.5, 1, 2, 5, 10)

READY = "ready"
"""Name of the readiness operation; its failures are not logged as failed requests."""


class BackendCollector(Collector):
    """Prometheus collector of a backend's current figures.

    `more`: help texts of figures of views that `FIGURES` does not contain, by name.
    """

    def __init__(self, backend: Backend, more: Mapping[str, str]) -> None:
        self._backend = backend
        self._texts = {**FIGURES, **more}

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for part, figures in self._backend.figures().items():
            for name, value in figures.items():
                if name not in families:
                    text = self._texts.get(name, f"The figure {name!r} of a view.")
                    families[name] = GaugeMetricFamily(metric_of(name), text, labels=["part"])
                families[name].add_metric([part], value)
        return iter(families.values())


def figures_in(metrics: str) -> dict[str, dict[str, float]]:
    """Parse the figures of a service from its metrics page; return them by part, then by name."""
    figures: dict[str, dict[str, float]] = {}
    line = rf'^{PREFIX}(\w+){{part="(.*)"}} (.*)$'
    for name, part, value in re.findall(line, metrics, re.MULTILINE):
        figures.setdefault(part, {})[name] = float(value)
    return figures


def metric_of(figure: str) -> str:
    """Return the Prometheus name of a figure."""
    return f"{PREFIX}{''.join(c if c.isalnum() and c.isascii() else '_' for c in figure)}"


class MeasuredApp:
    """Wrapper of an ASGI application; measures requests and normalises their paths."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._failures: dict[str, FailureLog] = {}
        """Name of a failing operation -> its failure log."""
        self._slow_bodies = RateLimitedLog(
            "body-timeout", "the body of a request arrived too slowly, so the request was rejected"
        )
        self._seconds = Histogram(
            "driftline_http_request_seconds",
            "Time from a request to the end of its answer; of event streams: to the first byte.",
            ["operation"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._requests = Counter(
            "driftline_http_requests",
            "Requests that have ended; status 0: the client disconnected before the answer.",
            ["operation", "status"],
            registry=registry,
        )
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        """(operation, status) -> its metrics; a cache, because `labels` is slow."""
        self._open = 0
        is_open = Gauge(
            "driftline_http_open_requests", "Requests and streams in progress.", registry=registry
        )
        is_open.set_function(lambda: self._open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_log = scope[REQUEST_LOG_KEY] = RequestLog()
        began = monotonic()
        status = size = 0
        head_at = 0.0

        async def recording_send(message: Message) -> None:
            nonlocal status, size, head_at
            if message["type"] == "http.response.start":
                status, head_at = message["status"], monotonic()
                took = f"app;dur={(head_at - began) * 1000:.2f}".encode()
                headers = [*message.get("headers", ()), (b"server-timing", took)]
                message = {**message, "headers": headers}
            else:
                size += len(message.get("body", b""))
            await send(message)

        self._open += 1
        try:
            path = normalized_path(scope)
            if path is None:
                bad = ApiError("invalid", "the path is not percent-encoded UTF-8")
                request_log.code = bad.code
                await error_response(bad)(scope, receive, recording_send)
            else:
                scope["path"] = path
                await self._app(scope, receive, recording_send)
        finally:
            self._open -= 1
            ended = monotonic()
            self._record(scope, request_log, status, size, ended - began, head_at - began, ended)

    def _record(
        self,
        scope: Scope,
        request_log: RequestLog,
        status: int,
        size: int,
        seconds: float,
        until_head_s: float,
        now: float,
    ) -> None:
        """Record a request that has ended in the metrics and in the log.

        `status`: 0 if nothing was sent; `until_head_s`: seconds until the head of the response.
        """
        name = request_log.operation or "none"
        requests, durations = self._counters(name, status)
        requests.inc()
        if status:
            durations.observe(until_head_s if request_log.is_endless else seconds)
        if log.isEnabledFor(logging.DEBUG):
            text, path = "%s %s: %d in %.1f ms", str(scope["path"])[:200]
            fields = event_fields(
                "request",
                method=scope["method"],
                path=path,
                operation=request_log.operation,
                status=status,
                code=request_log.code,
                client=request_log.client,
                address=(scope.get("client") or [""])[0],
                seconds=seconds,
                bytes=size,
            )
            log.debug(text, scope["method"], path, status, seconds * 1000, extra=fields)
        if request_log.code == "slow":
            self._slow_bodies.add(now, (scope.get("client") or [""])[0])
        else:
            self._slow_bodies.log_if_due(now)
        if status >= 500 and request_log.operation != READY:
            failures = self._failures.setdefault(name, FailureLog("requests-failed"))
            text = f"a request for operation {name} was answered with {status} ({request_log.code})"
            failures.record_failure(now, text)
        elif 0 < status < 400 and name in self._failures:
            text = f"requests for operation {name} are answered again"
            self._failures.pop(name).record_success(now, text)

    def _counters(self, name: str, status: int) -> tuple[Counter, Histogram]:
        counters = self._counted.get((name, status))
        if counters is None:
            counters = self._requests.labels(name, str(status)), self._seconds.labels(name)
            self._counted[name, status] = counters
        return counters


def normalized_path(scope: Scope) -> str | None:
    """Return the path of a request with percent-encoding removed, or None if that fails.

    In a segment `%`, `/` and the line feed stay encoded; a line feed would not match a route.
    `operations` decodes them in path parameters.
    """
    raw = scope.get("raw_path")
    if raw is None:
        return str(scope["path"]).replace("%", "%25").replace("\n", "%0A")
    if raw.isascii() and b"%" not in raw and b"\n" not in raw:
        return str(raw, "ascii")
    try:
        segments = [unquote_to_bytes(segment).decode() for segment in raw.split(b"/")]
    except UnicodeDecodeError:
        return None
    return "/".join(re.sub("[%/\n]", lambda match: quote(match[0], safe=""), s) for s in segments)
