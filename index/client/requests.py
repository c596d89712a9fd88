"""What the client asks of a service: each method as a request, and how its answer is read.

Nothing is sent here. Both clients, the one that blocks and the one that is awaited, send these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Generic, Literal, TypeVar
from urllib.parse import quote
from uuid import uuid4

import driftline.index.client.results as results
from driftline.index.client.batches import Batch, Gathering, Line, batches, encoded
from driftline.index.client.errors import Invalid
from driftline.index.client.events import Followed
from driftline.index.client.results import (
    Change,
    Count,
    Document,
    Explained,
    Found,
    Watch,
    WatchEvent,
    Written,
)

T = TypeVar("T")

Wait = Literal["durable", "visible"]
"""When a write is answered: when it is durable, or when it can be found, too."""

NONE = "none"
"""As `if_label`: only if there is no such document."""

_LABEL = re.compile(r"[0-9a-hjkmnp-tv-z]{14}")

Params = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request; `read`: what its answer says, which is JSON; `again`: whether it may be sent a
    second time."""

    method: str
    path: str
    read: Callable[[object], T]
    params: Params
    content: bytes | None = None
    again: bool = True


class Session:
    """The largest label that was written; all clients of a session read what it has written."""

    def __init__(self, reads_own: bool) -> None:
        self.label = ""
        self._reads_own = reads_own
        self._lock = Lock()

    def written(self, told: object) -> Written:
        """Read and note the answer to a write."""
        done = results.written(told)
        with self._lock:
            self.label = max(self.label, done.label)
        return done

    def times(self, at: str | None, after: str | None) -> dict[str, str]:
        """The parameters of a read as of a time."""
        given = _given(at=at, after=after or None)
        if at is None and self._reads_own and self.label:
            given["after"] = max(given.get("after", ""), self.label)
        return given


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests for a collection; `prefix`: of their paths."""

    session: Session
    prefix: str = ""

    def collection(self, name: str) -> Requests:
        """The requests for another collection."""
        return replace(self, prefix=f"/collections/{_quoted(name)}")

    # Writes.

    def put(
        self,
        id: str,
        document: Mapping[str, object],
        if_label: str | None,
        key: str | None,
        wait: Wait,
    ) -> Request[Written]:
        return self._write("PUT", id, encoded(document), if_label, key, wait)

    def delete(
        self, id: str, if_label: str | None, key: str | None, wait: Wait
    ) -> Request[Written]:
        return self._write("DELETE", id, None, if_label, key, wait)

    def _write(
        self,
        method: str,
        id: str,
        content: bytes | None,
        if_label: str | None,
        key: str | None,
        wait: Wait,
    ) -> Request[Written]:
        # Without a key from the first attempt on, a second one would be another write: of the same
        # content, but perhaps over that of somebody else, and with a change of its own.
        key = uuid4().hex if key is None else key
        params = {**_given(if_label=if_label, key=key or None), **_waiting(wait)}
        path = self._document(id)
        return Request(method, path, self.session.written, params, content, again=bool(key))

    def bulk(self, lines: Iterable[Line], wait: Wait) -> Iterator[Batch]:
        return batches(lines, self.gathering(wait))

    def gathering(self, wait: Wait) -> Gathering:
        """What gathers the lines of a bulk."""
        return Gathering(wait == "visible", self.session.written)

    @property
    def bulk_path(self) -> str:
        """Where a bulk goes."""
        return f"{self.prefix}/documents:bulk"

    # Reads.

    def get(self, id: str, at: str | None, after: str | None) -> Request[Document]:
        return self._read(self._document(id), results.document, {}, at, after)

    def search(
        self,
        q: str,
        limit: int,
        cursor: str | None,
        at: str | None,
        after: str | None,
        sort: str | None,
        facets: Sequence[str],
        fields: Sequence[str],
        snippets: bool,
    ) -> Request[Found]:
        params = {
            **_given(q=q, cursor=cursor, sort=sort),
            **_page(limit, fields, snippets),
            **_several(facet=facets),
        }
        if cursor is not None:  # it says as of which T
            return Request("GET", f"{self.prefix}/search", results.found, params)
        return self._read(f"{self.prefix}/search", results.found, params, at, after)

    def count(self, q: str, at: str | None, after: str | None) -> Request[Count]:
        return self._read(f"{self.prefix}/count", results.count, _given(q=q), at, after)

    def explain(self, q: str, id: str, at: str | None, after: str | None) -> Request[Explained]:
        params = _given(q=q, id=id)
        return self._read(f"{self.prefix}/explain", results.explained, params, at, after)

    def like(
        self,
        id: str,
        limit: int,
        at: str | None,
        after: str | None,
        fields: Sequence[str],
        snippets: bool,
    ) -> Request[Found]:
        params = _page(limit, fields, snippets)
        return self._read(f"{self._document(id)}/like", results.found, params, at, after)

    def now(self) -> Request[str]:
        """As of which T the service is."""
        return Request("GET", "/healthz", results.at, {})

    def _read(
        self,
        path: str,
        read: Callable[[object], T],
        params: Params,
        at: str | None,
        after: str | None,
    ) -> Request[T]:
        return Request("GET", path, read, {**params, **self.session.times(at, after)})

    # Streams and watches.

    def changes(self, at: str, until: str) -> Followed[Change]:
        at, until = _text("from_", at), _text("until", until)
        if until and not _LABEL.fullmatch(until):  # no event would ever come after it
            what = {"parameter": "until"}
            raise Invalid("invalid", f"until: {until!r:.100} is no label, as an answer has", what)
        return Followed(f"{self.prefix}/changes", results.change, at, until)

    def put_watch(self, id: str, q: str, wait: Wait) -> Request[Written]:
        # Sent again, it stores the same query again: that changes nothing.
        params, content = _waiting(wait), encoded({"q": q})
        return Request("PUT", self._watch(id), self.session.written, params, content)

    def remove_watch(self, id: str, wait: Wait) -> Request[Written]:
        return Request("DELETE", self._watch(id), self.session.written, _waiting(wait))

    def get_watch(self, id: str, after: str | None) -> Request[Watch]:
        return self._read(self._watch(id), results.watch, {}, None, after)

    def watch_events(self, id: str, at: str) -> Followed[WatchEvent]:
        return Followed(f"{self._watch(id)}/events", results.watch_event, _text("from_", at))

    def _document(self, id: str) -> str:
        return f"{self.prefix}/documents/{_quoted(id)}"

    def _watch(self, id: str) -> str:
        return f"{self.prefix}/watches/{_quoted(id)}"


def _quoted(name: str) -> str:
    """A name as one part of a path. Raises Invalid."""
    if not _text("an id or a name", name):
        raise Invalid("invalid", "an id or a name is empty")
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="")


def _page(limit: int, fields: Sequence[str], snippets: bool) -> dict[str, str | Sequence[str]]:
    return {
        "limit": str(limit),
        **({} if snippets else {"snippets": "0"}),
        **_several(field=fields),
    }


def _waiting(wait: Wait) -> dict[str, str]:
    return {} if wait == "durable" else {"wait": wait}


def _given(**params: str | None) -> dict[str, str]:
    """The parameters that there are. Raises Invalid for what is no text."""
    return {name: _text(name, value) for name, value in params.items() if value is not None}


def _several(**params: Sequence[str]) -> dict[str, Sequence[str]]:
    """Parameters that take several texts; a text alone is one. Raises Invalid."""
    return {
        name: [_text(name, value) for value in ([values] if isinstance(values, str) else values)]
        for name, values in params.items()
        if values
    }


def _text(what: str, value: object) -> str:
    """Raises Invalid for what is no text, or has halves of characters."""
    if not isinstance(value, str):
        raise Invalid("invalid", f"{what}: {value!r:.100} is no text", {"parameter": what})
    try:
        value.encode()
    except UnicodeEncodeError as error:
        text = f"{what}: {value!r:.100} has half of a character at {error.start}"
        raise Invalid("invalid", text, {"parameter": what}) from None
    return value
