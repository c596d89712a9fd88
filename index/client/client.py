"""Blocking client: runs the methods of `AsyncIndexClient` over a blocking connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from ssl import SSLContext
from types import TracebackType
from typing import Generic, Self, TypeVar

from driftline.index.client.async_client import AsyncEvents, AsyncIndexClient, Wait, WriteSession
from driftline.index.client.batches import Line
from driftline.index.client.connection import (
    URL,
    BlockingConnection,
    ConnectionSettings,
    run_blocking,
)
from driftline.index.client.results import FailedLine
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


class EventReader(Generic[T]):
    """Event stream of a service: each event once and in order, across reconnects.

    An iterator and a context manager. Leaving the context closes the connection.
    """

    def __init__(self, events: AsyncEvents[T]) -> None:
        self._async_events = events

    @property
    def at(self) -> str:
        """T before which all events were returned; pass it as `from_` to continue later."""
        return self._async_events.at

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return run_blocking(self._async_events.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Close the connection."""
        run_blocking(self._async_events.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class IndexClient:
    """Client of an index service. A context manager; thread-safe.

    `url`: address of the service; `token`: access token, if required; `session`: whether reads wait
    for this client's writes; `timeout_s`: seconds without data after which an attempt fails (30 for
    streams); `retry_s`: how long to retry a request if the service is unreachable or busy, 0: no
    retry; `verify`: as in httpx, an SSLContext if a private authority issued the service's
    certificate. Raises Invalid for an invalid token, time or `verify`, ServiceUnavailable for an
    invalid address.

    Methods raise ServiceError if a request fails; its subclasses are in `driftline.index.client`.

    Each write of a document has an idempotency key, unless the caller passes key="". So the service
    applies the write once, even if the client retries it.
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
        connection = BlockingConnection(ConnectionSettings(url, token, timeout_s, retry_s, verify))
        self._async_client = AsyncIndexClient._over(connection, WriteSession(session))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, which clients of other collections (`collection`) share."""
        run_blocking(self._async_client.close())

    def collection(self, name: str) -> Self:
        """Return a client of another collection, with the same connections and session.

        A client without a collection uses the only one of the index, or `documents` if there are
        several.
        """
        other = copy(self)
        other._async_client = self._async_client.collection(name)
        return other

    @property
    def label(self) -> str:
        """Largest label that this client, or another client of its session, has written.

        "" if there is none.
        """
        return self._async_client.label

    # Writes.

    def put(
        self,
        id: str,
        document: Mapping[str, object],
        *,
        if_label: str | None = None,
        key: str | None = None,
        wait: Wait = "durable",
    ) -> Written:
        """Create or replace a document.

        `if_label`: write only if the current document has this label; "none": only if there is no
        document. Raises Conflict otherwise. `key`: idempotency key, by default a new one; "": no
        key, which disables retries. `wait`: return once the write is "durable", or once reads can
        also see it ("visible").
        """
        return run_blocking(
            self._async_client.put(id, document, if_label=if_label, key=key, wait=wait)
        )

    def delete(
        self,
        id: str,
        *,
        if_label: str | None = None,
        key: str | None = None,
        wait: Wait = "durable",
    ) -> Written:
        """Delete a document. The arguments are those of `put`.

        If there is no document, the result has `absent`.
        """
        return run_blocking(self._async_client.delete(id, if_label=if_label, key=key, wait=wait))

    def bulk(
        self, lines: Iterable[Line], *, wait: Wait = "durable"
    ) -> Iterator[Written | FailedLine]:
        """Put documents, each with its "id" among its fields, and delete others (`Delete`).

        Yields the result of each line, in order: for a line that fails, a `FailedLine`. Sends
        requests of at most 1,000 lines or 4 MiB, each after the caller has consumed the results of
        the previous one. Sends nothing unless the caller iterates.
        """
        return _iterate(self._async_client.bulk(lines, wait=wait))

    # Reads.

    def get(self, id: str, *, at: str | None = None, after: str | None = None) -> Document:
        """Return a document. Raises NotFound.

        `at`: T to read, from an earlier answer; `after`: label of a write that the read must
        include.
        """
        return run_blocking(self._async_client.get(id, at=at, after=after))

    def search(
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
        """Search documents. Raises QueryRefused, which contains the position of the error.

        `limit`: maximum number of hits in the answer, with `snippets` at most 100; `cursor`: the
        cursor of an answer to the same query, to get the next page as of the same T (`at` and
        `after` are ignored); `sort`: keyword, number or date field, "-field" for descending order,
        by default the score; `facets`: keyword fields whose values are counted in all matching
        documents; `fields`: document fields to return.
        """
        return run_blocking(
            self._async_client.search(
                q, limit=limit, cursor=cursor, at=at, after=after, sort=sort, facets=facets,
                fields=fields, snippets=snippets,
            )
        )  # fmt: skip

    def search_all(
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
    ) -> Iterator[SearchResult]:
        """Search, and yield all results in pages of `limit` documents, all as of the same T."""
        return _iterate(
            self._async_client.search_all(
                q, limit=limit, at=at, after=after, sort=sort, facets=facets, fields=fields,
                snippets=snippets,
            )
        )  # fmt: skip

    def count(self, q: str, *, at: str | None = None, after: str | None = None) -> CountAnswer:
        """Count the documents that match a query."""
        return run_blocking(self._async_client.count(q, at=at, after=after))

    def explain(
        self, q: str, id: str, *, at: str | None = None, after: str | None = None
    ) -> Explained:
        """Explain a document's score."""
        return run_blocking(self._async_client.explain(q, id, at=at, after=after))

    # Streams and watches.

    def changes(self, from_: str | None = None, *, until: str | None = None) -> EventReader[Change]:
        """Stream new versions of documents from a label on; by default from now on.

        `until`: T at which the stream ends, such as the `at` of an answer. If the service has not
        reached this T, the stream continues until it has.
        """
        return EventReader(self._async_client.changes(self._start_label(from_), until=until))

    def put_watch(self, id: str, q: str, *, wait: Wait = "durable") -> Written:
        """Store a query: a later write that makes a document match, or no longer match, causes an
        event (`watch_events`)."""
        return run_blocking(self._async_client.put_watch(id, q, wait=wait))

    def remove_watch(self, id: str, *, wait: Wait = "durable") -> Written:
        """Remove a stored query."""
        return run_blocking(self._async_client.remove_watch(id, wait=wait))

    def get_watch(self, id: str, *, after: str | None = None) -> Watch:
        """Return a stored query. Raises NotFound."""
        return run_blocking(self._async_client.get_watch(id, after=after))

    def watch_events(self, id: str, from_: str | None = None) -> EventReader[WatchEvent]:
        """Stream the events of a watch from a label on; by default from now on."""
        return EventReader(self._async_client.watch_events(id, self._start_label(from_)))

    def _start_label(self, label: str | None) -> str:
        """Return the start T of a stream; for None, the current T of the service.

        The stream then starts at the time of the call, even if its connection breaks at once.
        """
        return run_blocking(self._async_client._current_time()) if label is None else label


def _iterate(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    try:
        while True:
            try:
                item = run_blocking(_next(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run_blocking(items.aclose())


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)
