"""Operations: what a route takes, does and gives; how a request gets to it, and what it meets.

A request is for one operation. It needs the operation's right, room among the requests at work,
and parameters that can be read. Whatever is refused on the way is answered as a problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.engine.errors import DriftlineError
from driftline.engine.events import log
from driftline.serve.errors import ApiError
from driftline.serve.http.access import Access, Right, check_host, check_origin
from driftline.serve.http.content import (
    ENDS,
    INTERNAL,
    BodyReader,
    ClientLeft,
    Json,
    problem,
    refusal_of,
    while_connected,
)
from driftline.serve.http.parameters import Given, Parameter, path_of, query_of

SERVICE = "service"
"""The tag of operations that are about the service itself."""

TOLD = "driftline.told"
"""In the scope of a request: what is told of it, a `RequestLog`."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Limits of what clients can do; `access`: who may do what, None: everybody may do all."""

    access: Access | None = None
    body_bytes_max: int = 8 << 20
    """Of the body of a request, and of a line of a bulk. A text takes more bytes in JSON."""
    within_s: float = 10.0
    """So long a read waits for its T and for its answer."""
    idle_s: float = 60.0
    """So long a client may take for the next bytes of a body."""
    heartbeat_s: float = 4.0
    """A stream without events says how far it is at the first span after so long."""
    requests_max: int = 512
    """At work at one time, without streams and bulks."""
    streams_max: int = 192
    """Streams of events, and bulks, at one time."""
    window: int = 256
    """Writes of one bulk that are under way."""


@dataclass(slots=True)
class RequestLog:
    """What the log and the metrics say of a request."""

    operation: str = ""
    client: str = ""
    code: str = ""
    follows: bool = False
    """Whether the answer goes on for as long as the client likes."""


class Call(Given):
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
        """The name of the token, or the address."""
        self.headers = headers
        """By name, in small letters."""
        self.settings = settings
        self._receive = receive

    async def body(self) -> bytes:
        """The body. Raises Refused if it is too large, or does not come."""
        most = self.settings.body_bytes_max
        data = bytearray()
        async with aclosing(self.reader().parts()) as parts:
            async for part in parts:
                data += part
                if len(data) > most:
                    raise ApiError("large", f"the body has more than {most} bytes")
        return bytes(data)

    def reader(self) -> BodyReader:
        """A reader of the body. Raises Refused if it has an encoding that is not supported."""
        return BodyReader(self._receive, self.headers, self.settings.idle_s)


Does = Callable[[Call], Awaitable[ASGIApp]]


class StreamItem(NamedTuple):
    """A line, or an event, of a stream: the name and the schema that the description has of it."""

    name: str
    schema: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request or an answer, for the description.

    `item`: of a stream; `components`: the schemas by name that its own refers to.
    """

    schema: Mapping[str, Json]
    media_type: str = "application/json"
    example: Json = None
    item: StreamItem | None = None
    components: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path.

    `path`: as in Starlette, where `{id:path}` may have slashes; `right`: None: everybody may;
    `streams`: the answer goes on for as long as the client likes, or sends. `refusals`: the
    statuses of problems besides those that any request may meet.
    """

    method: str
    path: str
    does: Does
    name: str
    summary: str
    parameters: tuple[Parameter[Any], ...] = ()
    right: Right | None = "read"
    body: Body | None = None
    answer: Body | None = None
    refusals: tuple[int, ...] = ()
    streams: bool = False
    tag: str = SERVICE

    @property
    def follows(self) -> bool:
        """Whether the answer goes on for as long as the client likes: that to a body ends."""
        return self.streams and self.method == "GET"

    def below(self, prefix: str, parameter: Parameter[Any]) -> Operation:
        """The same operation below a prefix, which has a parameter."""
        return replace(
            self, path=prefix + self.path, name=f"{self.name}_of",
            parameters=(parameter, *self.parameters),
        )  # fmt: skip


class AppState:
    """What all operations of a service share: settings, and how many requests are at work."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self._at_work = {False: 0, True: 0}
        """Whether they are streams -> how many."""

    @contextmanager
    def room(self, operation: Operation) -> Iterator[None]:
        """Count a request while it is at work. Raises Refused if there are too many already.

        Questions about the service itself are always answered.
        """
        streams, settings = operation.streams, self.settings
        most = settings.streams_max if streams else settings.requests_max
        if self._at_work[streams] >= most and operation.tag != SERVICE:
            what = "streams and bulks" if streams else "requests"
            raise ApiError("busy", f"there are {most} {what} at work already: try again later")
        self._at_work[streams] += 1
        try:
            yield
        finally:
            self._at_work[streams] -= 1


def routes(operations: Sequence[Operation], state: AppState) -> list[Route]:
    """The routes of operations, in their order."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _Methods(methods, state)) for path, methods in by_path.items()]


class _Methods:
    """What is at a path."""

    def __init__(self, methods: Mapping[str, Operation], state: AppState) -> None:
        self._methods = dict(methods)
        self._state = state
        get = methods.get("GET")
        if get is not None and not get.streams:
            self._methods.setdefault("HEAD", get)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told: RequestLog = scope.setdefault(TOLD, RequestLog())
        has_begun = False

        async def told_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            operation = self._methods.get(scope["method"])
            if operation is None:
                raise ApiError("method", f"here one can {', '.join(self._methods)}")
            told.operation = operation.name
            told.follows = operation.follows
            headers = _headers_of(scope)
            _admit(scope, headers, operation, self._state.settings, told)
            with self._state.room(operation):
                answer = await self._answer(operation, scope, headers, receive, told.client)
                await answer(scope, receive, told_send)
                return
        except ClientLeft:
            told.code = "left"
            return
        except DriftlineError as error:
            refused = refusal_of(error)
        except asyncio.CancelledError:  # nobody else cancels it: the service ends
            refused = ENDS
        except Exception:
            log.exception("a request has failed: %s %s", scope["method"], scope["path"])
            refused = INTERNAL
        told.code = refused.code
        if has_begun:
            return  # the server cuts the connection: the client must not take this for all of it
        allow = {"Allow": ", ".join(self._methods)} if refused.code == "method" else {}
        await problem(refused, allow)(scope, receive, send)

    async def _answer(
        self,
        operation: Operation,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        client: str,
    ) -> ASGIApp:
        in_path = [(name, unquote(text)) for name, text in scope["path_params"].items()]
        given = path_of(in_path, operation.parameters)
        asked = query_of(scope["query_string"], operation.parameters)
        values = {**given.values, **asked.values}
        call = Call(values, headers, receive, self._state.settings, client)
        if operation.method != "GET" or operation.streams:
            return await operation.does(call)
        return await while_connected(receive, operation.does(call))


def _headers_of(scope: Scope) -> Mapping[str, str]:
    """By name; of several with one name, the first."""
    pairs = reversed(scope["headers"])
    return {name.decode("latin-1"): text.decode("latin-1") for name, text in pairs}


def _admit(
    scope: Scope,
    headers: Mapping[str, str],
    operation: Operation,
    settings: HttpSettings,
    told: RequestLog,
) -> None:
    """Tell who asks. Raises Refused if it may not."""
    if settings.access is None:
        check_host(headers.get("host", ""))
    if operation.right is not None and scope["method"] not in ("GET", "HEAD"):
        check_origin(headers)
    if settings.access is None or operation.right is None:
        told.client = (scope.get("client") or ("",))[0]
        return
    holder = settings.access.holder(headers.get("authorization", ""))
    told.client = holder.name
    if not holder.may(operation.right):
        raise ApiError(
            "right", f"this token may {holder.right}, and this needs the right {operation.right}"
        )
