"""Asyncio client of an index service; the blocking `IndexClient` is built on it."""

from __future__ import annotations

import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from copy import copy
from ssl import SSLContext
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx

from driftline.index.client.batches import BulkRequest, BulkRequestBuilder, Line, encode_json
from driftline.index.client.connection import (
    URL,
    AsyncConnection,
    Attempts,
    Connection,
    ConnectionSettings,
    Params,
    content_of,
)
from driftline.index.client.errors import Invalid, ServiceError, ServiceUnavailable
from driftline.index.client.events import StreamPosition
from driftline.index.client.results import CurrentTime, FailedLine, decode
from driftline.index.documents.answers import (
    Change,
    CountAnswer,
    Document,
    Explained,
    SearchResult,
    Watch,
    WatchEvent,
    Written,
)

T = TypeVar("T")

Wait = Literal["durable", "visible"]
"""When the service answers a write: once it is durable, or once reads can also see it."""

NO_LABEL = "none"
"""Value of `if_label`: write only if the document does not exist."""

_LABEL = re.compile(r"[0-9a-hjkmnp-tv-z]{14}")
"""Form of a label (`serve.views.tokens`); only the service verifies its check digit."""


class AsyncEvents(Generic[T]):
    """Event stream of a service: each event once and in order, across reconnects.

    An asynchronous iterator and context manager. Leaving the context closes the connection.
    """

    def __init__(self, position: StreamPosition[T], events: AsyncGenerator[T, None]) -> None:
        self._position = position
        self._events = events

    @property
    def at(self) -> str:
        """T before which all events were returned; pass it as `from_` to continue later."""
        return self._position.at

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await anext(self._events)

    async def close(self) -> None:
        """Close the connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class WriteSession:
    """Largest label written by the clients that share a session.

    `reads_own`: whether the clients' reads wait until they can see the clients' writes.
    """

    def __init__(self, reads_own: bool) -> None:
        self.label = ""
        self._reads_own = reads_own
        self._lock = Lock()

    def note(self, written: Written) -> Written:
        """Record a write and return it."""
        with self._lock:
            self.label = max(self.label, written.label)
        return written

    def time_params(self, at: str | None, after: str | None) -> dict[str, str]:
        """Return the parameters `at` and `after` of a read.

        If reads wait for the session's writes, `after` is at least the largest label of these,
        unless `at` is given.
        """
        params = _text_params(at=at, after=after or None)
        if at is None and self._reads_own and self.label:
            params["after"] = max(params.get("after", ""), self.label)
        return params


class AsyncIndexClient:
    """Asyncio client of an index service. A context manager; for use in one event loop.

    Its arguments, methods and exceptions are those of `IndexClient`.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        token: str | None = None,
        session: bool = False,
        timeout_s: float = 30.0,
        retry_s: float = 30.0,
        verify: SSLContext | bool = True,
    ) -> None:
        settings = ConnectionSettings(url, token, timeout_s, retry_s, verify)
        self._init(AsyncConnection(settings), WriteSession(session))

    @classmethod
    def _over(cls, connection: Connection, session: WriteSession) -> Self:
        """Create a client over an existing connection."""
        client = cls.__new__(cls)
        client._init(connection, session)
        return client

    def _init(self, connection: Connection, session: WriteSession) -> None:
        self._connection = connection
        self._session = session
        self._prefix = ""
        """Path prefix of the collection; "": the default collection of the service."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, which clients of other collections (`collection`) share."""
        await self._connection.close()

    def collection(self, name: str) -> Self:
        """Return a client of another collection, with the same connections and session.

        A client without a collection uses the only one of the index, or `documents` if there are
        several.
        """
        other = copy(self)
        other._prefix = f"/collections/{_quoted(name)}"
        return other

    @property
    def label(self) -> str:
        """Largest label that this client, or another client of its session, has written.

        "" if there is none.
        """
        return self._session.label

    # Writes.

    async def put(
        self,
        id: str,
        document: Mapping[str, object],
        *,
        if_label: str | None = None,
        key: str | None = None,
        wait: Wait = "durable",
    ) -> Written:
        """Create or replace a document."""
        return await self._write("PUT", id, encode_json(document), if_label, key, wait)

    async def delete(
        self,
        id: str,
        *,
        if_label: str | None = None,
        key: str | None = None,
        wait: Wait = "durable",
    ) -> Written:
        """Delete a document."""
        return await self._write("DELETE", id, None, if_label, key, wait)

    async def bulk(
        self, lines: Iterable[Line] | AsyncIterable[Line], *, wait: Wait = "durable"
    ) -> AsyncGenerator[Written | FailedLine, None]:
        """Put documents, each with its "id" among its fields, and delete others (`Delete`).

        Yields the result of each line, in order: for a line that fails, a `FailedLine`. Sends
        requests of at most 1,000 lines or 4 MiB, each after the caller has consumed the results of
        the previous one. Sends nothing unless the caller iterates.
        """
        path = f"{self._prefix}/documents:bulk"
        async for request in self._bulk_requests(lines, wait):
            attempts = self._new_attempts()
            while True:
                try:
                    request.reset()
                    async with self._open_stream(
                        "POST", path, request.params, request.content
                    ) as parts:
                        async for data in parts:
                            for result in request.feed(data):
                                attempts.reset(monotonic())
                                yield result
                    request.end()
                    break
                except ServiceError as error:
                    await self._connection.sleep(attempts.pause_s(error, monotonic()))

    # Reads.

    async def get(self, id: str, *, at: str | None = None, after: str | None = None) -> Document:
        """Return a document."""
        return await self._read(self._document_path(id), Document, {}, at, after)

    async def search(
        self,
        q: str,
        *,
        limit: int = 10,
        cursor: str | None = None,
        at: str | None = None,
        after: str | None = None,
        sort: str | None = None,
        facets: Sequence[str] = (),
        fields: Sequence[str] = (),
        snippets: bool = True,
    ) -> SearchResult:
        """Search documents."""
        path = f"{self._prefix}/search"
        params = {
            **_text_params(q=q, cursor=cursor, sort=sort),
            **_page_params(limit, fields, snippets),
            **_list_params(facet=facets),
        }
        if cursor is not None:  # a cursor contains the T to read
            return await self._request("GET", path, SearchResult, params)
        return await self._read(path, SearchResult, params, at, after)

    async def search_all(
        self,
        q: str,
        *,
        limit: int = 100,
        at: str | None = None,
        after: str | None = None,
        sort: str | None = None,
        facets: Sequence[str] = (),
        fields: Sequence[str] = (),
        snippets: bool = True,
    ) -> AsyncGenerator[SearchResult, None]:
        """Search, and yield all results in pages of `limit` documents, all as of the same T."""
        cursor: str | None = None
        while True:
            page = await self.search(
                q, limit=limit, cursor=cursor, at=at, after=after, sort=sort, facets=facets,
                fields=fields, snippets=snippets,
            )  # fmt: skip
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    async def count(
        self, q: str, *, at: str | None = None, after: str | None = None
    ) -> CountAnswer:
        """Count the documents that match a query."""
        return await self._read(f"{self._prefix}/count", CountAnswer, _text_params(q=q), at, after)

    async def explain(
        self, q: str, id: str, *, at: str | None = None, after: str | None = None
    ) -> Explained:
        """Explain a document's score."""
        params = _text_params(q=q, id=id)
        return await self._read(f"{self._prefix}/explain", Explained, params, at, after)

    # Streams and watches.

    def changes(self, from_: str | None = None, *, until: str | None = None) -> AsyncEvents[Change]:
        """Stream new versions of documents from a label on; by default from the first iteration on.

        `until`: as in `IndexClient`. Raises Invalid if it is not a label.
        """
        at, until = _check_text("from_", from_ or ""), _check_text("until", until or "")
        if until and not _LABEL.fullmatch(until):  # the stream could run forever
            text = f"until: {until!r:.100} is not a label; use the `at` or `label` of an answer"
            raise Invalid("invalid", text, {"parameter": "until"})
        return self._follow(StreamPosition(f"{self._prefix}/changes", Change, at, until))

    async def put_watch(self, id: str, q: str, *, wait: Wait = "durable") -> Written:
        """Store a query: a later write that makes a document match, or no longer match, causes an
        event (`watch_events`)."""
        # Idempotent: a retry stores the same query.
        params, content = _wait_params(wait), encode_json({"q": q})
        written = await self._request("PUT", self._watch_path(id), Written, params, content)
        return self._session.note(written)

    async def remove_watch(self, id: str, *, wait: Wait = "durable") -> Written:
        """Remove a stored query."""
        written = await self._request("DELETE", self._watch_path(id), Written, _wait_params(wait))
        return self._session.note(written)

    async def get_watch(self, id: str, *, after: str | None = None) -> Watch:
        """Return a stored query."""
        return await self._read(self._watch_path(id), Watch, {}, None, after)

    def watch_events(self, id: str, from_: str | None = None) -> AsyncEvents[WatchEvent]:
        """Stream the events of a watch from a label on; by default from the first iteration on."""
        at = _check_text("from_", from_ or "")
        return self._follow(StreamPosition(f"{self._watch_path(id)}/events", WatchEvent, at))

    # Requests.

    def _document_path(self, id: str) -> str:
        return f"{self._prefix}/documents/{_quoted(id)}"

    def _watch_path(self, id: str) -> str:
        return f"{self._prefix}/watches/{_quoted(id)}"

    async def _write(
        self,
        method: str,
        id: str,
        content: bytes | None,
        if_label: str | None,
        key: str | None,
        wait: Wait,
    ) -> Written:
        # Without a key, a retry would be a separate write: it could overwrite another client's
        # write and would cause another change event.
        key = uuid4().hex if key is None else key
        params = {**_text_params(if_label=if_label, key=key or None), **_wait_params(wait)}
        path = self._document_path(id)
        written = await self._request(
            method, path, Written, params, content, is_retryable=bool(key)
        )
        return self._session.note(written)

    async def _read(
        self,
        path: str,
        kind: type[T],
        params: Params,
        at: str | None,
        after: str | None,
    ) -> T:
        return await self._request(
            "GET", path, kind, {**params, **self._session.time_params(at, after)}
        )

    async def _current_time(self) -> str:
        """Return the current T of the service."""
        return (await self._request("GET", "/healthz", CurrentTime, {})).at

    async def _request(
        self,
        method: str,
        path: str,
        kind: type[T],
        params: Params,
        content: bytes | None = None,
        is_retryable: bool = True,
    ) -> T:
        """Send a request and decode its answer to `kind`.

        `is_retryable`: whether to retry the request after a temporary error.
        """
        attempts, connection = self._new_attempts(), self._connection
        while True:
            try:
                try:
                    response = await connection.send(method, path, params, content)
                except httpx.TransportError as error:
                    raise connection.to_service_error(error) from None
                return decode(content_of(response), kind)
            except ServiceError as error:
                if not is_retryable:
                    raise
                await connection.sleep(attempts.pause_s(error, monotonic()))

    def _new_attempts(self) -> Attempts:
        return Attempts(self._connection.settings.retry_s, monotonic())

    async def _bulk_requests(
        self, lines: Iterable[Line] | AsyncIterable[Line], wait: Wait
    ) -> AsyncIterator[BulkRequest]:
        """Yield the requests for these lines; read each request's lines on demand."""
        builder = BulkRequestBuilder(wait == "visible", self._session.note)
        async for line in lines if isinstance(lines, AsyncIterable) else _as_async(lines):
            if (request := builder.add(line)) is not None:
                yield request
        if (request := builder.flush()) is not None:
            yield request

    def _follow(self, position: StreamPosition[T]) -> AsyncEvents[T]:
        return AsyncEvents(position, self._events(position))

    async def _events(self, position: StreamPosition[T]) -> AsyncGenerator[T, None]:
        # Get the start T first: if a connection breaks before the first event, the next connection
        # would otherwise start at a later T.
        position.at = position.at or await self._current_time()
        attempts = self._new_attempts()
        while not position.is_over():
            try:
                async with self._open_stream("GET", position.path, position.begin()) as parts:
                    async for data in parts:
                        attempts.reset(monotonic())
                        for event in position.feed(data):
                            yield event
                        if position.is_over():
                            return
                url = self._connection.settings.url
                raise ServiceUnavailable("unavailable", f"{url} closed the stream")
            except ServiceError as error:
                await self._connection.sleep(attempts.pause_s(error, monotonic()))

    @asynccontextmanager
    async def _open_stream(
        self, method: str, path: str, params: Mapping[str, str], content: bytes | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request; the value of the context yields the parts of its answer as they arrive.

        Raises ServiceError.
        """
        try:
            async with self._connection.stream(method, path, params, content) as parts:
                yield parts
        except httpx.TransportError as error:
            raise self._connection.to_service_error(error) from None


async def _as_async(lines: Iterable[Line]) -> AsyncIterator[Line]:
    for line in lines:
        yield line


def _quoted(name: str) -> str:
    """Quote a name as a path segment. Raises Invalid."""
    if not _check_text("an id or a name", name):
        raise Invalid("invalid", "an id or a name is empty")
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="")


def _page_params(
    limit: int, fields: Sequence[str], snippets: bool
) -> dict[str, str | Sequence[str]]:
    return {
        "limit": str(limit),
        **({} if snippets else {"snippets": "0"}),
        **_list_params(field=fields),
    }


def _wait_params(wait: Wait) -> dict[str, str]:
    return {} if wait == "durable" else {"wait": wait}


def _text_params(**params: str | None) -> dict[str, str]:
    """Return the parameters that are not None. Raises Invalid if one is not a string."""
    return {name: _check_text(name, value) for name, value in params.items() if value is not None}


def _list_params(**params: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the non-empty parameters, each as a list of values; a string is one value.

    Raises Invalid if a value is not a string.
    """
    return {
        name: [
            _check_text(name, value) for value in ([values] if isinstance(values, str) else values)
        ]
        for name, values in params.items()
        if values
    }


def _check_text(what: str, value: object) -> str:
    """Return a value if it is a string that UTF-8 can encode. Raises Invalid otherwise.

    `what`: name of the parameter, for the error.
    """
    if not isinstance(value, str):
        raise Invalid("invalid", f"{what}: {value!r:.100} is not a text", {"parameter": what})
    try:
        value.encode()
    except UnicodeEncodeError as error:
        text = f"{what}: {value!r:.100} has an unpaired surrogate at index {error.start}"
        raise Invalid("invalid", text, {"parameter": what}) from None
    return value
