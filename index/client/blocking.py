"""The client that blocks: it runs the methods of `AsyncIndexClient` over a blocking connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from ssl import SSLContext
from types import TracebackType
from typing import Generic, Self, TypeVar

from driftline.index.client.awaited import AsyncEvents, AsyncIndexClient, Session, Wait
from driftline.index.client.batches import Line
from driftline.index.client.connection import URL, BlockingConnection, ConnectionSettings, run
from driftline.index.client.results import FailedLine
from driftline.index.documents.answers import (
    Change,
    Count,
    Document,
    Explained,
    SearchResult,
    Watch,
    WatchEvent,
    Written,
)

T = TypeVar("T")


class EventReader(Generic[T]):
    """Events of a service, each once and in order; a broken connection is made again.

    An iterator, and a context manager, which closes the connection.
    """

    def __init__(self, events: AsyncEvents[T]) -> None:
        self._awaited = events

    @property
    def at(self) -> str:
        """All events before this T were given: `from_=` for those that follow."""
        return self._awaited.at

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return run(self._awaited.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Close the connection."""
        run(self._awaited.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class IndexClient:
    """A client of an index service. A context manager; several threads may use it.

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
        connection = BlockingConnection(ConnectionSettings(url, token, timeout_s, retry_s, verify))
        self._awaited = AsyncIndexClient._over(connection, Session(session))

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
        """Close all connections."""
        run(self._awaited.close())

    def collection(self, name: str) -> Self:
        """A client of another collection, with the same connections and the same session."""
        other = copy(self)
        other._awaited = self._awaited.collection(name)
        return other

    @property
    def label(self) -> str:
        """The largest label of what this client has written; "": it has written nothing."""
        return self._awaited.label

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
        """Put a document in place of what is there.

        `if_label`: only if the document that is there has this label, "none": only if there is
        none; raises Conflict. `key`: a name for this write, by default a new one; "": none: then it
        is sent once only. `wait`: until it is durable, or until it can be found, too.
        """
        return run(self._awaited.put(id, document, if_label=if_label, key=key, wait=wait))

    def delete(
        self,
        id: str,
        *,
        if_label: str | None = None,
        key: str | None = None,
        wait: Wait = "durable",
    ) -> Written:
        """Delete a document. The arguments are those of `put`."""
        return run(self._awaited.delete(id, if_label=if_label, key=key, wait=wait))

    def bulk(
        self, lines: Iterable[Line], *, wait: Wait = "durable"
    ) -> Iterator[Written | FailedLine]:
        """Put documents, each with its "id" among its fields, and delete others (`Delete`).

        An iterator: it has what became of each line, in their order, and takes as many of them as
        are in one request before it waits for the answers. Nothing is done unless it is read.
        """
        return _iterated(self._awaited.bulk(lines, wait=wait))

    # Reads.

    def get(self, id: str, *, at: str | None = None, after: str | None = None) -> Document:
        """A document. Raises NotFound.

        `at`: as of this token, which an answer has given; `after`: as of a T that shows the write
        with this label.
        """
        return run(self._awaited.get(id, at=at, after=after))

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
        """Search documents. Raises QueryRefused, which says where.

        `cursor`: go on where an answer to the same query ended; `sort`: a field, "-field":
        descending; `facets`: fields whose values are counted; `fields`: those of the documents that
        are wanted in the answer.
        """
        return run(
            self._awaited.search(
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
        """All that is found, as pages of `limit` documents, all as of the same T."""
        return _iterated(
            self._awaited.search_all(
                q, limit=limit, at=at, after=after, sort=sort, facets=facets, fields=fields,
                snippets=snippets,
            )
        )  # fmt: skip

    def count(self, q: str, *, at: str | None = None, after: str | None = None) -> Count:
        """How many documents a query finds."""
        return run(self._awaited.count(q, at=at, after=after))

    def explain(
        self, q: str, id: str, *, at: str | None = None, after: str | None = None
    ) -> Explained:
        """Why a document has its score."""
        return run(self._awaited.explain(q, id, at=at, after=after))

    # Streams and watches.

    def changes(self, from_: str | None = None, *, until: str | None = None) -> EventReader[Change]:
        """Each new version of a document, from a label on; without it, from now on.

        `until`: end with the last one before this T, as soon as the service is there (an `at`
        of an answer is one where it is).
        """
        return EventReader(self._awaited.changes(self._from(from_), until=until))

    def put_watch(self, id: str, q: str, *, wait: Wait = "durable") -> Written:
        """Store a query: from its label on, documents that begin to match it make events."""
        return run(self._awaited.put_watch(id, q, wait=wait))

    def remove_watch(self, id: str, *, wait: Wait = "durable") -> Written:
        """Remove a stored query."""
        return run(self._awaited.remove_watch(id, wait=wait))

    def get_watch(self, id: str, *, after: str | None = None) -> Watch:
        """A stored query. Raises NotFound."""
        return run(self._awaited.get_watch(id, after=after))

    def watch_events(self, id: str, from_: str | None = None) -> EventReader[WatchEvent]:
        """The events of a watch, from a label on; without it, from now on."""
        return EventReader(self._awaited.watch_events(id, self._from(from_)))

    def _from(self, label: str | None) -> str:
        """Return where a stream begins; if that is now, ask for it: else a connection that breaks
        at once would leave a gap."""
        return run(self._awaited._now()) if label is None else label


def _iterated(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    try:
        while True:
            try:
                item = run(_next(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)
