"""Operations: what a route takes, does and gives; how a request gets to it, and what it meets.

A request is for one operation. It needs the operation's right, a place among those at work, and
parameters that can be read. Whatever is refused on the way is answered as a problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.engine.errors import DriftlineError
from driftline.engine.events import log
from driftline.serve.errors import Refused
from driftline.serve.http.access import Right, check_host, check_origin
from driftline.serve.http.content.jsons import Json
from driftline.serve.http.content.parameters import Given, Parameter, path_of, query_of
from driftline.serve.http.content.problems import ENDS, INTERNAL, problem, refusal_of
from driftline.serve.http.content.streams import (
    PART_BYTES,
    ClientLeft,
    InParts,
    Sender,
    connection_of,
    while_there,
)
from driftline.serve.http.limits import Places, Rates
from driftline.serve.http.settings import Settings

T = TypeVar("T")

BYTES_PER_S = 1 << 14
"""A body may take as much longer as it would at this speed: a byte now and then is too slow."""

SERVICE = "service"
"""The tag of operations that are about the service itself."""

TOLD = "driftline.told"
"""In the scope of a request: what is told of it, a `Told`."""


@dataclass(slots=True)
class Told:
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
        settings: Settings,
    ) -> None:
        super().__init__(values)
        self.headers = headers
        """By name, in small letters."""
        self.settings = settings
        self._receive = receive

    async def body(self) -> bytes:
        """The body. Raises Refused if it is too large, or does not come."""
        most, until = self.settings.body_bytes_max, monotonic() + self.settings.idle_s
        data = bytearray()
        while True:
            within_s = until + len(data) / BYTES_PER_S - monotonic()
            late = f"the body has not come in time, though {len(data)} bytes of it have"
            message = await received(self._receive, within_s, late)
            data += message.get("body", b"")
            if len(data) > most:
                raise Refused("large", f"the body has more than {most} bytes")
            if not message.get("more_body", False):
                return bytes(data)


Does = Callable[[Call], Awaitable[ASGIApp]]


class Item(NamedTuple):
    """A line, or an event, of a stream: the name and the schema that the description has of it."""

    name: str
    schema: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request or an answer, for the description; `item`: of a stream."""

    schema: Mapping[str, Json]
    media_type: str = "application/json"
    example: Json = None
    item: Item | None = None


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


@dataclass(slots=True)
class Ground:
    """What all operations of a service share."""

    settings: Settings
    requests: Places = field(init=False)
    bodies: Places = field(init=False)
    own: Places = field(init=False)
    streams: Places = field(init=False)
    bulks: Places = field(init=False)
    unread: Places = field(init=False)
    rates: Rates = field(init=False)

    def __post_init__(self) -> None:
        most = self.settings.requests_max
        self.requests = Places(most, "requests at work")
        self.bodies = Places(most, "requests with a body at work")
        self.own = Places(most, "requests about the service at work")
        self.streams = Places(self.settings.streams_max, "streams")
        self.bulks = Places(self.settings.bulks_max, "bulks")
        self.unread = Places(
            self.settings.unread_bytes_max, "bytes of answers that clients have not read"
        )
        self.rates = Rates(self.settings.requests_per_s)

    def places(self, operation: Operation) -> Places:
        """Where a request for an operation has its place: whoever sends slowly, or asks much, keeps
        no others out, and nobody who asks whether the service is well."""
        if operation.streams:
            return self.streams if operation.follows else self.bulks
        if operation.tag == SERVICE:
            return self.own
        return self.requests if operation.body is None else self.bodies


def routes(operations: Sequence[Operation], ground: Ground) -> list[Route]:
    """The routes of operations, in their order."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _Methods(methods, ground)) for path, methods in by_path.items()]


class _Methods:
    """What is at a path."""

    def __init__(self, methods: Mapping[str, Operation], ground: Ground) -> None:
        self._methods = dict(methods)
        self._ground = ground
        get = methods.get("GET")
        if get is not None and not get.streams:
            self._methods.setdefault("HEAD", get)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told: Told = scope.setdefault(TOLD, Told())
        has_begun = False

        async def told_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            operation = self._methods.get(scope["method"])
            if operation is None:
                raise Refused("method", f"here one can {', '.join(self._methods)}")
            told.operation = operation.name
            told.follows = operation.follows
            headers = _headers_of(scope)
            _admit(scope, headers, operation, self._ground.settings, told)
            self._ground.rates.ask(told.client, monotonic())
            with self._ground.places(operation).take():
                answer = await self._answer(operation, scope, headers, receive)
                if not isinstance(answer, Response) or len(answer.body) <= PART_BYTES:
                    await answer(scope, receive, told_send)
                    return
                with self._ground.unread.take(len(answer.body)):
                    in_parts = InParts(answer, self._ground.settings.idle_s)
                    await in_parts(scope, receive, told_send)
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
        if has_begun:  # the client must not take what it has for the whole answer
            await Sender(scope, send, 0).cut_off()
            return
        allow = {"Allow": ", ".join(self._methods)} if refused.code == "method" else {}
        await problem(refused, allow, self._ground.settings.retry_s)(scope, receive, send)

    async def _answer(
        self, operation: Operation, scope: Scope, headers: Mapping[str, str], receive: Receive
    ) -> ASGIApp:
        in_path = [(name, unquote(text)) for name, text in scope["path_params"].items()]
        given = path_of(in_path, operation.parameters)
        asked = query_of(scope["query_string"], operation.parameters)
        settings = self._ground.settings
        call = Call({**given.values, **asked.values}, headers, receive, settings)
        if operation.method != "GET" or operation.streams:
            return await operation.does(call)
        return await while_there(connection_of(scope), partial(operation.does, call))


def _headers_of(scope: Scope) -> Mapping[str, str]:
    """By name; of several with one name, the first. Raises Refused for two hosts (RFC 9112)."""
    pairs = scope["headers"]
    headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in pairs[::-1]}
    if len(headers) < len(pairs) and sum(name == b"host" for name, _ in pairs) > 1:
        raise Refused("invalid", "the header Host is there twice")
    return headers


def _admit(
    scope: Scope,
    headers: Mapping[str, str],
    operation: Operation,
    settings: Settings,
    told: Told,
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
        raise Refused(
            "right", f"this token may {holder.right}, and this needs the right {operation.right}"
        )


async def received(receive: Receive, within_s: float, late: str) -> Mapping[str, Any]:
    """The next message of a request's body; `late`: what is said if it does not come.

    Raises Refused, and ClientLeft.
    """
    try:
        async with asyncio.timeout(within_s):
            message = await receive()
    except TimeoutError:
        raise Refused("slow", late) from None
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message


def json_answer(data: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """An answer of JSON, which is not to be kept: the next one may be as of a later time."""
    more = {"Cache-Control": "no-store", **(headers or {})}
    return Response(data, 200, more, "application/json")
