"""Operations: declarations of routes, and the dispatch of requests to them.

A request is rejected if the client lacks the operation's right, too many requests are running, or
a parameter is invalid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec import Struct, field
from msgspec.structs import replace
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.engine.errors import DriftlineError
from driftline.engine.events import log
from driftline.serve.errors import ApiError
from driftline.serve.http.access import Access, Right, check_host, check_origin
from driftline.serve.http.content import (
    INTERNAL,
    SHUTTING_DOWN,
    BodyReader,
    ClientLeft,
    Json,
    error_response,
    to_api_error,
    while_connected,
)
from driftline.serve.http.parameters import Parameter, ParameterValues, parse_path, parse_query

SERVICE = "service"
"""The tag of operations on the service itself, such as the health check."""

REQUEST_LOG_KEY = "driftline.request_log"
"""The key of a request's `RequestLog` in its ASGI scope."""


class HttpSettings(Struct, frozen=True):
    """Access control and limits for clients. `access`: None if there is no access control."""

    access: Access | None = None
    body_bytes_max: int = 8 << 20
    """Limit in bytes of a body, and of a line of a bulk request, after decompression."""
    timeout_s: float = 10.0
    """Timeout of a read in seconds, including the wait for its T."""
    idle_s: float = 60.0
    """Longest pause between bytes of a body, in seconds."""
    heartbeat_s: float = 4.0
    """Seconds after which a stream without events sends its progress, at the next span."""
    requests_max: int = 512
    """Limit of concurrent requests; event streams and bulk requests do not count."""
    streams_max: int = 192
    """Limit of concurrent event streams and bulk requests."""
    window: int = 256
    """Limit of concurrent writes of one bulk request."""


class RequestLog(Struct):
    """The fields of a request for the log and the metrics.

    `operation`: the name of the operation; `client`: the name of the token's holder, or the
    address; `code`: the error code, or "left" if the client disconnected. Each is "" if unknown.
    """

    operation: str = ""
    client: str = ""
    code: str = ""
    is_endless: bool = False
    """Whether the response is an endless stream."""


class Call(ParameterValues):
    """A request for an operation; `call[PARAMETER]` is the value of a parameter."""

    def __init__(
        self,
        values: dict[str, Any],
        headers: Mapping[str, str],
        receive: Receive,
        settings: HttpSettings,
        client: str = "",
    ) -> None:
        super().__init__(values)
        self.client = client
        """The name of the token's holder; the client's address without a token."""
        self.headers = headers
        """The request headers by lower-case name."""
        self.settings = settings
        self._receive = receive

    async def body(self) -> bytes:
        """Read the body. Raises ClientLeft; ApiError if it is too large, too slow or damaged."""
        limit = self.settings.body_bytes_max
        data = bytearray()
        async with aclosing(self.reader().parts()) as parts:
            async for part in parts:
                data += part
                if len(data) > limit:
                    raise ApiError("large", f"the body has more than {limit} bytes")
        return bytes(data)

    def reader(self) -> BodyReader:
        """Return a reader of the body. Raises ApiError for an unsupported encoding."""
        return BodyReader(self._receive, self.headers, self.settings.idle_s)


Handler = Callable[[Call], Awaitable[ASGIApp]]


class StreamItem(NamedTuple):
    """A line or an event of a stream: name and schema in the OpenAPI description."""

    name: str
    schema: Mapping[str, Json]


class Body(Struct, frozen=True):
    """The body of a request or a response, for the OpenAPI description.

    `item`: the line or event, if the body is a stream; `components`: the schemas, by name, to which
    `schema` refers.
    """

    schema: Mapping[str, Json]
    media_type: str = "application/json"
    example: Json = None
    item: StreamItem | None = None
    components: Mapping[str, Json] = field(default_factory=dict)


class Operation(Struct, frozen=True):
    """An HTTP method of a path, with its handler and its description.

    `path`: in Starlette's syntax, where `{id:path}` matches slashes, too; `name`: for metrics, logs
    and the `operationId`; `right`: the right that the client needs, None: no token needed;
    `error_statuses`: HTTP statuses of errors besides those that every operation may return;
    `streams`: whether the response, or the body of the request, is a stream of unlimited length.
    """

    method: str
    path: str
    handler: Handler
    name: str
    summary: str
    parameters: tuple[Parameter[Any], ...] = ()
    right: Right | None = "read"
    body: Body | None = None
    answer: Body | None = None
    error_statuses: tuple[int, ...] = ()
    streams: bool = False
    tag: str = SERVICE

    @property
    def is_endless(self) -> bool:
        """Whether the response is an endless stream; the response to a streamed body ends."""
        return self.streams and self.method == "GET"

    def prefixed(self, prefix: str, parameter: Parameter[Any]) -> Operation:
        """Return a copy of the operation at `prefix` + `path`; `parameter` occurs in `prefix`."""
        return replace(
            self, path=prefix + self.path, name=f"{self.name}_of",
            parameters=(parameter, *self.parameters),
        )  # fmt: skip


class AppState:
    """The shared state of a service's operations: settings, and counts of running requests."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self._running = {False: 0, True: 0}
        """`Operation.streams` -> number of running requests."""

    @contextmanager
    def limit_concurrency(self, operation: Operation) -> Iterator[None]:
        """Count a request while the context is active. Raises ApiError if too many are running.

        Operations on the service itself are never rejected.
        """
        streams, settings = operation.streams, self.settings
        limit = settings.streams_max if streams else settings.requests_max
        if self._running[streams] >= limit and operation.tag != SERVICE:
            kind = "streams and bulks" if streams else "requests"
            raise ApiError("busy", f"{limit} {kind} are in progress already: retry later")
        self._running[streams] += 1
        try:
            yield
        finally:
            self._running[streams] -= 1


def routes(operations: Sequence[Operation], state: AppState) -> list[Route]:
    """Return the routes of operations, in their order."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _Methods(methods, state)) for path, methods in by_path.items()]


class _Methods:
    """The operations of a path, by method."""

    def __init__(self, methods: Mapping[str, Operation], state: AppState) -> None:
        self._methods = dict(methods)
        self._state = state
        get = methods.get("GET")
        if get is not None and not get.streams:
            self._methods.setdefault("HEAD", get)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_log: RequestLog = scope.setdefault(REQUEST_LOG_KEY, RequestLog())
        has_begun = False

        async def recording_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            operation = self._methods.get(scope["method"])
            if operation is None:
                raise ApiError("method", f"method not allowed; use {', '.join(self._methods)}")
            request_log.operation = operation.name
            request_log.is_endless = operation.is_endless
            headers = _headers_of(scope)
            _admit(scope, headers, operation, self._state.settings, request_log)
            with self._state.limit_concurrency(operation):
                answer = await self._answer(operation, scope, headers, receive, request_log.client)
                await answer(scope, receive, recording_send)
                return
        except ClientLeft:
            request_log.code = "left"
            return
        except DriftlineError as error:
            api_error = to_api_error(error)
        except asyncio.CancelledError:  # only a shutdown cancels requests
            api_error = SHUTTING_DOWN
        except Exception:
            log.exception("a request has failed: %s %s", scope["method"], scope["path"])
            api_error = INTERNAL
        request_log.code = api_error.code
        if has_begun:
            return  # the server closes the connection, so the client sees an incomplete response
        allow = {"Allow": ", ".join(self._methods)} if api_error.code == "method" else {}
        await error_response(api_error, allow)(scope, receive, send)

    async def _answer(
        self,
        operation: Operation,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        client: str,
    ) -> ASGIApp:
        path_texts = [(name, unquote(text)) for name, text in scope["path_params"].items()]
        in_path = parse_path(path_texts, operation.parameters)
        in_query = parse_query(scope["query_string"], operation.parameters)
        values = {**in_path.values, **in_query.values}
        call = Call(values, headers, receive, self._state.settings, client)
        if operation.method != "GET" or operation.streams:
            return await operation.handler(call)
        return await while_connected(receive, operation.handler(call))


def _headers_of(scope: Scope) -> Mapping[str, str]:
    """Return the headers by lower-case name; the first one if a name occurs several times."""
    pairs = reversed(scope["headers"])
    return {name.decode("latin-1"): text.decode("latin-1") for name, text in pairs}


def _admit(
    scope: Scope,
    headers: Mapping[str, str],
    operation: Operation,
    settings: HttpSettings,
    request_log: RequestLog,
) -> None:
    """Check host, origin and token of a request, and set `request_log.client`. Raises ApiError."""
    if settings.access is None:
        check_host(headers.get("host", ""))
    if operation.right is not None and scope["method"] not in ("GET", "HEAD"):
        check_origin(headers)
    if settings.access is None or operation.right is None:
        request_log.client = (scope.get("client") or ("",))[0]
        return
    holder = settings.access.holder(headers.get("authorization", ""))
    request_log.client = holder.name
    if not holder.may(operation.right):
        text = f"this token has the right {holder.right}; the request needs {operation.right}"
        raise ApiError("right", text)
