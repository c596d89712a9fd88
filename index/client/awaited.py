"""The client that is awaited: `IndexClient` for programs with asyncio."""

from __future__ import annotations

from asyncio import sleep
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
from time import monotonic
from types import TracebackType
from typing import Generic, Self, TypeVar

import httpx

from driftline.index.client.batches import Batch, Line
from driftline.index.client.connection import URL, Reach, answer, closed, refusal
from driftline.index.client.errors import ServiceError, Unavailable
from driftline.index.client.events import Followed
from driftline.index.client.requests import Request, Requests, Session, Wait
from driftline.index.client.results import (
    Change,
    Count,
    Document,
    Explained,
    Failed,
    Found,
    Watch,
    WatchEvent,
    Written,
)
from driftline.index.client.retrying import Attempts

T = TypeVar("T")


class AsyncEvents(Generic[T]):
    """Events of a service, each once and in order; a broken connection is made again.

    An iterator, and a context manager, which closes the connection.
    """

    def __init__(self, followed: Followed[T], events: AsyncGenerator[T, None]) -> None:
        self._followed = followed
        self._events = events

    @property
    def at(self) -> str:
        """All events before this T were given: `from_=` for those that follow."""
        return self._followed.at

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


class AsyncIndexClient:
    """A client of an index service. A context manager, for one event loop.

    `url`: where the service is; `token`: an access token, if it wants one; `session`: reads wait
    for what this client has written; `timeout_s`: how long the service may be silent in one
    attempt; `retry_s`: how long a request is tried again, if the service cannot be reached or is
    busy, 0: not at all; `verify`: as in httpx, for a certificate of one's own authority. Raises
    Invalid for what is no token or no time, Unavailable for what is no address.

    Every method raises ServiceError, each kind of which has a class in `driftline.index.client`.

    A write has a key, from its first attempt on: so it is done once, however often it is sent.
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
        self._reach = Reach(url, token, timeout_s, retry_s, verify)
        self._requests = Requests(Session(session))
        self._http = httpx.AsyncClient(
            base_url=url, headers=self._reach.headers, timeout=self._reach.timeout, verify=verify
        )

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
        """Close all connections."""
        await self._http.aclose()

    def collection(self, name: str) -> Self:
        """A client of another collection, with the same connections and the same session."""
        other = copy(self)
        other._requests = self._requests.collection(name)
        return other

    @property
    def label(self) -> str:
        """The largest label of what this client has written; "": it has written nothing."""
        return self._requests.session.label

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
        """Put a document in place of what is there.

        `if_label`: only if the document that is there has this label, "none": only if there is
        none; raises Conflict. `key`: a name for this write, by default a new one; "": none: then it
        is sent once only. `wait`: until it is durable, or until it can be found, too.
        """
        return await self._do(self._requests.put(id, document, if_label, key, wait))

    async def delete(
        self,
        id: str,
        *,
        if_label: str | None = None,
        key: str | None = None,
        wait: Wait = "durable",
    ) -> Written:
        """Delete a document. The arguments are those of `put`."""
        return await self._do(self._requests.delete(id, if_label, key, wait))

    async def bulk(
        self, lines: Iterable[Line] | AsyncIterable[Line], *, wait: Wait = "durable"
    ) -> AsyncGenerator[Written | Failed, None]:
        """Put documents, each with its "id" among its fields, and delete others (`Delete`).

        An iterator: it has what became of each line, in their order, and takes as many of them as
        are in one request before it waits for the answers. Nothing is done unless it is read.
        """
        path = self._requests.bulk_path
        async for batch in self._batches(lines, wait):
            attempts = self._attempts()
            while True:
                try:
                    batch.begin()
                    async with self._opened("POST", path, batch.params, batch.content) as parts:
                        async for data in parts:
                            for result in batch.take(data):
                                attempts.worked(monotonic())
                                yield result
                    batch.end()
                    break
                except ServiceError as error:
                    await sleep(attempts.pause_s(error, monotonic()))

    # Reads.

    async def get(self, id: str, *, at: str | None = None, after: str | None = None) -> Document:
        """A document. Raises NotFound.

        `at`: as of this token, which an answer has given; `after`: as of a T that shows the write
        with this label.
        """
        return await self._do(self._requests.get(id, at, after))

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
    ) -> Found:
        """Search documents. Raises QueryRefused, which says where.

        `cursor`: go on where an answer to the same query ended; `sort`: a field, "-field":
        descending; `facets`: fields whose values are counted; `fields`: those of the documents that
        are wanted in the answer.
        """
        return await self._do(
            self._requests.search(q, limit, cursor, at, after, sort, facets, fields, snippets)
        )

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
    ) -> AsyncGenerator[Found, None]:
        """All that is found, as pages of `limit` documents, all as of the same T."""
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

    async def count(self, q: str, *, at: str | None = None, after: str | None = None) -> Count:
        """How many documents a query finds."""
        return await self._do(self._requests.count(q, at, after))

    async def explain(
        self, q: str, id: str, *, at: str | None = None, after: str | None = None
    ) -> Explained:
        """Why a document has its score."""
        return await self._do(self._requests.explain(q, id, at, after))

    async def like(
        self,
        id: str,
        *,
        limit: int = 10,
        at: str | None = None,
        after: str | None = None,
        fields: Sequence[str] = (),
        snippets: bool = True,
    ) -> Found:
        """Documents that are like this one."""
        return await self._do(self._requests.like(id, limit, at, after, fields, snippets))

    # Streams and watches.

    def changes(self, from_: str | None = None, *, until: str | None = None) -> AsyncEvents[Change]:
        """Each new version of a document, from a label on; without it, from when it is
        first read. `until`: as in `IndexClient`."""
        return self._follow(self._requests.changes(from_ or "", until or ""))

    async def put_watch(self, id: str, q: str, *, wait: Wait = "durable") -> Written:
        """Store a query: from its label on, documents that begin to match it make events."""
        return await self._do(self._requests.put_watch(id, q, wait))

    async def remove_watch(self, id: str, *, wait: Wait = "durable") -> Written:
        """Remove a stored query."""
        return await self._do(self._requests.remove_watch(id, wait))

    async def get_watch(self, id: str, *, after: str | None = None) -> Watch:
        """A stored query. Raises NotFound."""
        return await self._do(self._requests.get_watch(id, after))

    def watch_events(self, id: str, from_: str | None = None) -> AsyncEvents[WatchEvent]:
        """The events of a watch, from a label on; without it, from when it is
        first read."""
        return self._follow(self._requests.watch_events(id, from_ or ""))

    # How it is done.

    @property
    def _sender(self) -> httpx.AsyncClient:
        if self._http.is_closed:
            raise closed()
        return self._http

    async def _batches(
        self, lines: Iterable[Line] | AsyncIterable[Line], wait: Wait
    ) -> AsyncIterator[Batch]:
        if not isinstance(lines, AsyncIterable):
            for batch in self._requests.bulk(lines, wait):
                yield batch
            return
        gathering = self._requests.gathering(wait)
        async for line in lines:
            if (full := gathering.add(line)) is not None:
                yield full
        if (rest := gathering.rest()) is not None:
            yield rest

    def _attempts(self) -> Attempts:
        return Attempts(self._reach.retry_s, monotonic())

    async def _do(self, request: Request[T]) -> T:
        attempts = self._attempts()
        while True:
            try:
                return request.read(await self._answer(request))
            except ServiceError as error:
                if not request.again:
                    raise
                await sleep(attempts.pause_s(error, monotonic()))

    async def _answer(self, request: Request[T]) -> object:
        try:
            response = await self._sender.request(
                request.method, request.path, params=request.params, content=request.content
            )
        except httpx.TransportError as error:
            raise self._reach.broken(error, self._http.is_closed) from None
        return answer(response)

    def _follow(self, followed: Followed[T]) -> AsyncEvents[T]:
        return AsyncEvents(followed, self._events(followed))

    async def _events(self, followed: Followed[T]) -> AsyncGenerator[T, None]:
        # Without it, a connection that breaks before the first event would leave a gap.
        followed.at = followed.at or await self._do(self._requests.now())
        attempts = self._attempts()
        while not followed.is_over():
            try:
                async with self._opened("GET", followed.path, followed.begin()) as parts:
                    async for data in parts:
                        attempts.worked(monotonic())
                        for event in followed.take(data):
                            yield event
                        if followed.is_over():
                            return
                raise Unavailable("unavailable", f"{self._reach.url} has ended the stream")
            except ServiceError as error:
                await sleep(attempts.pause_s(error, monotonic()))

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, params: Mapping[str, str], content: bytes | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The parts of an answer, as they come."""
        timeout = self._reach.timeout_of_streams
        try:
            async with self._sender.stream(
                method, path, params=params, content=content, timeout=timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    raise refusal(response)
                yield response.aiter_bytes()
        except httpx.TransportError as error:
            raise self._reach.broken(error, self._http.is_closed) from None
