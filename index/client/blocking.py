"""The client that blocks: each method returns what the service has answered."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from ssl import SSLContext
from time import monotonic, sleep
from types import TracebackType
from typing import Generic, Self, TypeVar

import httpx

from driftline.index.client.batches import Line
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


class Events(Generic[T]):
    """Events of a service, each once and in order; a broken connection is made again.

    An iterator, and a context manager, which closes the connection.
    """

    def __init__(self, followed: Followed[T], events: Generator[T, None, None]) -> None:
        self._followed = followed
        self._events = events

    @property
    def at(self) -> str:
        """All events before this T were given: `from_=` for those that follow."""
        return self._followed.at

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return next(self._events)

    def close(self) -> None:
        """Close the connection."""
        self._events.close()

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
        self._reach = Reach(url, token, timeout_s, retry_s, verify)
        self._requests = Requests(Session(session))
        self._http = httpx.Client(
            base_url=url, headers=self._reach.headers, timeout=self._reach.timeout, verify=verify
        )

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
        self._http.close()

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
        return self._do(self._requests.put(id, document, if_label, key, wait))

    def delete(
        self,
        id: str,
        *,
        if_label: str | None = None,
        key: str | None = None,
        wait: Wait = "durable",
    ) -> Written:
        """Delete a document. The arguments are those of `put`."""
        return self._do(self._requests.delete(id, if_label, key, wait))

    def bulk(self, lines: Iterable[Line], *, wait: Wait = "durable") -> Iterator[Written | Failed]:
        """Put documents, each with its "id" among its fields, and delete others (`Delete`).

        An iterator: it has what became of each line, in their order, and takes as many of them as
        are in one request before it waits for the answers. Nothing is done unless it is read.
        """
        path = self._requests.bulk_path
        for batch in self._requests.bulk(lines, wait):
            attempts = self._attempts()
            while True:
                try:
                    batch.begin()
                    with self._opened("POST", path, batch.params, batch.content) as parts:
                        for data in parts:
                            for result in batch.take(data):
                                attempts.worked(monotonic())
                                yield result
                    batch.end()
                    break
                except ServiceError as error:
                    sleep(attempts.pause_s(error, monotonic()))

    # Reads.

    def get(self, id: str, *, at: str | None = None, after: str | None = None) -> Document:
        """A document. Raises NotFound.

        `at`: as of this token, which an answer has given; `after`: as of a T that shows the write
        with this label.
        """
        return self._do(self._requests.get(id, at, after))

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
    ) -> Found:
        """Search documents. Raises QueryRefused, which says where.

        `cursor`: go on where an answer to the same query ended; `sort`: a field, "-field":
        descending; `facets`: fields whose values are counted; `fields`: those of the documents that
        are wanted in the answer.
        """
        return self._do(
            self._requests.search(q, limit, cursor, at, after, sort, facets, fields, snippets)
        )

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
    ) -> Iterator[Found]:
        """All that is found, as pages of `limit` documents, all as of the same T."""
        cursor: str | None = None
        while True:
            page = self.search(
                q, limit=limit, cursor=cursor, at=at, after=after, sort=sort, facets=facets,
                fields=fields, snippets=snippets,
            )  # fmt: skip
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    def count(self, q: str, *, at: str | None = None, after: str | None = None) -> Count:
        """How many documents a query finds."""
        return self._do(self._requests.count(q, at, after))

    def explain(
        self, q: str, id: str, *, at: str | None = None, after: str | None = None
    ) -> Explained:
        """Why a document has its score."""
        return self._do(self._requests.explain(q, id, at, after))

    def like(
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
        return self._do(self._requests.like(id, limit, at, after, fields, snippets))

    # Streams and watches.

    def changes(self, from_: str | None = None, *, until: str | None = None) -> Events[Change]:
        """Each new version of a document, from a label on; without it, from now on.

        `until`: end with the last one before this T, as soon as the service is there (an `at`
        of an answer is one where it is).
        """
        return self._follow(self._requests.changes(self._from(from_), until or ""))

    def put_watch(self, id: str, q: str, *, wait: Wait = "durable") -> Written:
        """Store a query: from its label on, documents that begin to match it make events."""
        return self._do(self._requests.put_watch(id, q, wait))

    def remove_watch(self, id: str, *, wait: Wait = "durable") -> Written:
        """Remove a stored query."""
        return self._do(self._requests.remove_watch(id, wait))

    def get_watch(self, id: str, *, after: str | None = None) -> Watch:
        """A stored query. Raises NotFound."""
        return self._do(self._requests.get_watch(id, after))

    def watch_events(self, id: str, from_: str | None = None) -> Events[WatchEvent]:
        """The events of a watch, from a label on; without it, from now on."""
        return self._follow(self._requests.watch_events(id, self._from(from_)))

    # How it is done.

    @property
    def _sender(self) -> httpx.Client:
        if self._http.is_closed:
            raise closed()
        return self._http

    def _attempts(self) -> Attempts:
        return Attempts(self._reach.retry_s, monotonic())

    def _do(self, request: Request[T]) -> T:
        attempts = self._attempts()
        while True:
            try:
                return request.read(self._answer(request))
            except ServiceError as error:
                if not request.again:
                    raise
                sleep(attempts.pause_s(error, monotonic()))

    def _answer(self, request: Request[T]) -> object:
        try:
            response = self._sender.request(
                request.method, request.path, params=request.params, content=request.content
            )
        except httpx.TransportError as error:
            raise self._reach.broken(error, self._http.is_closed) from None
        return answer(response)

    def _from(self, label: str | None) -> str:
        """Where a stream begins; if that is now, it is asked for: else a connection that breaks at
        once would leave a gap."""
        return self._do(self._requests.now()) if label is None else label

    def _follow(self, followed: Followed[T]) -> Events[T]:
        return Events(followed, self._events(followed))

    def _events(self, followed: Followed[T]) -> Generator[T, None, None]:
        attempts = self._attempts()
        while not followed.is_over():
            try:
                with self._opened("GET", followed.path, followed.begin()) as parts:
                    for data in parts:
                        attempts.worked(monotonic())
                        yield from followed.take(data)
                        if followed.is_over():
                            return
                raise Unavailable("unavailable", f"{self._reach.url} has ended the stream")
            except ServiceError as error:
                sleep(attempts.pause_s(error, monotonic()))

    @contextmanager
    def _opened(
        self, method: str, path: str, params: Mapping[str, str], content: bytes | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The parts of an answer, as they come."""
        timeout = self._reach.timeout_of_streams
        try:
            with self._sender.stream(
                method, path, params=params, content=content, timeout=timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    response.read()
                    raise refusal(response)
                yield response.iter_bytes()
        except httpx.TransportError as error:
            raise self._reach.broken(error, self._http.is_closed) from None
