"""Clients of an index, which send random requests one after the other, retry them until they are
answered, and record them in a history."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from threading import Event
from time import monotonic

import httpx

from driftline.serve.views.tokens import token_of
from tests.index.truth import samples
from tests.index.truth.background_thread import BackgroundThread
from tests.index.truth.client_history import (
    ClientHistory,
    ReadResult,
    WatchChange,
    WriteAttempt,
    label_of,
)

CLIENT_TIMEOUT_S = 90.0
"""A client retries for this long; even a service under constant kills answers earlier."""

CLIENT_RETRY_S = 0.1

OWN_IDS, SHARED_IDS = 25, 15
"""Number of document ids of each client, and of ids that all clients share."""

PAST_TIMES_MAX = 200
"""Maximum number of remembered times T, for later reads as of them."""

PAST_AGE_MAX_US = 300 * 1_000_000
"""Maximum age of a T to read again: a service under load no longer retains older ones."""

BEGINNING = 10**12
"""T is smaller than this before the first write, and not retained after later writes."""

RETRYABLE_STATUSES = 429, 503


def open_http_client(url: str) -> httpx.Client:
    """Return an HTTP client; it skips loading certificates, which takes 20 ms."""
    return httpx.Client(base_url=url, timeout=30.0, trust_env=False, verify=False)


def watches_of(client: str) -> list[str]:
    """Return the ids of the watches that a client stores and removes."""
    return [f"{client}-a", f"{client}-b"]


class RandomClient(BackgroundThread):
    """Client whose requests are drawn from a seed."""

    def __init__(self, name: str, seed: int, url: str, history: ClientHistory, stop: Event) -> None:
        super().__init__(name)
        self._rng = Random(f"{name} {seed}")
        self._url = url
        self._history = history
        self._stop = stop
        self._http = self._open_http_client()
        self._mark_count = 0
        self._label = 0
        """Label of the last write."""
        self._request_count = 0
        """Number of requests sent, including retries."""
        self._past_times: deque[int] = deque(maxlen=PAST_TIMES_MAX)
        self._newest_time = 0
        """T of the last read that did not select a T or cursor."""
        self._labels: dict[str, int] = {}
        """Shared document id -> last known label, 0 if it was deleted."""

    def run(self) -> None:
        actions: list[Callable[[], None]] = [
            *[self._put] * 5, self._delete, self._put_once, self._write_conditionally, self._bulk,
            *[self._search] * 8, *[self._count] * 2, self._pages, *[self._get] * 3,
            self._find_new_document, *[self._watch] * 2,
        ]  # fmt: skip
        try:
            while not self._stop.is_set():
                self._rng.choice(actions)()
        finally:
            self._http.close()

    # Writes.

    def _put(self) -> None:
        """Put an own document, with an idempotency key; retry until it is answered."""
        write = self._new_put(self._own_id())
        response = self._request("PUT", write.id, {"key": write.mark}, write.document)
        self._record_success(write, response.json())

    def _delete(self) -> None:
        write = self._new_delete(self._own_id())
        response = self._request("DELETE", write.id, {"key": write.mark})
        self._record_success(write, response.json())

    def _put_once(self) -> None:
        """Put a document that other clients also write; do not retry."""
        write = self._new_put(self._shared_id())
        try:
            response = self._http.put(f"/documents/{write.id}", json=write.document)
        except httpx.TransportError:
            self._reconnect()
            return
        if response.status_code == 200:
            self._record_success(write, response.json())
        elif response.status_code not in RETRYABLE_STATUSES:
            self._record_unexpected(response)

    def _write_conditionally(self) -> None:
        """Write a shared document if it still has the last known label."""
        id = self._shared_id()
        expected = self._labels.get(id, 0)
        write = self._new_put(id) if self._rng.random() < 0.8 else self._new_delete(id)
        write.expected = expected
        parameters = {"key": write.mark, "if_label": token_of(expected) if expected else "none"}
        method = "PUT" if write.kind == "put" else "DELETE"
        response = self._request(method, id, parameters, write.document, other_status=409)
        if response.status_code == 200:
            self._record_success(write, response.json())
            return
        current = response.json()["error"]["label"]
        self._labels[id] = label_of(current) if current else 0
        if self._labels[id] == expected:
            self._history.errors.append(f"rejected although the condition held: {response.text}")

    def _bulk(self) -> None:
        """Send a bulk with some invalid lines; retry until all valid lines are accepted."""
        key = self._next_mark()
        ids = self._rng.sample(range(OWN_IDS), self._rng.randint(2, 8))
        lines: list[tuple[WriteAttempt | None, object]] = []
        for number in ids:
            id = f"{self.name}-{number}"
            if self._rng.random() < 0.2:
                lines.append((self._new_delete(id), {"delete": id}))
            else:
                write = self._new_put(id)
                lines.append((write, {"id": id, **(write.document or {})}))
            if self._rng.random() < 0.1:
                lines.append((None, {"id": "", "title": 7}))
        body = "".join(json.dumps(line) + "\n" for _, line in lines)
        until = monotonic() + CLIENT_TIMEOUT_S
        while not self._send_bulk(key, body, [write for write, _ in lines]):
            assert monotonic() < until, "a bulk was not accepted in time"
            self._stop.wait(CLIENT_RETRY_S)

    def _send_bulk(self, key: str, body: str, writes: list[WriteAttempt | None]) -> bool:
        try:
            response = self._http.post("/documents:bulk", params={"key": key}, content=body)
        except httpx.TransportError:
            self._reconnect()
            return False
        if response.status_code != 200:
            if response.status_code not in RETRYABLE_STATUSES:
                self._record_unexpected(response)
            return False
        lines = [json.loads(line) for line in response.text.splitlines()]
        if len(lines) != len(writes):
            self._history.errors.append(f"{len(writes)} lines got {len(lines)} answers: {lines}")
            return True
        is_complete = True
        for each, line in zip(writes, lines, strict=True):
            if each is None:
                if "error" not in line:
                    self._history.errors.append(f"an invalid line was accepted: {line}")
            elif "error" not in line:
                if not each.label:
                    self._record_success(each, line)
            elif line["error"]["code"] in ("unavailable", "busy"):
                self._history.retries["line"] += 1
                is_complete = False
            else:
                self._history.errors.append(f"a valid line was rejected: {line}")
        return is_complete

    def _watch(self) -> None:
        """Store or remove a random query."""
        id = self._rng.choice(watches_of(self.name))
        self.watch(id, None if self._rng.random() < 0.3 else self._draw_query())

    def watch(self, id: str, query: str | None) -> None:
        """Store or remove a query; without a key, a retry may apply the change again."""
        since, request_count = self._label, self._request_count
        method, body = ("DELETE", None) if query is None else ("PUT", {"q": query})
        response = self._request(method, id, {}, body, path=f"/watches/{id}")
        label = label_of(response.json()["label"])
        was_sent_once = self._request_count == request_count + 1
        self._history.watch_changes.append(
            WatchChange(id, query, label if was_sent_once else since, label)
        )
        self._label = max(self._label, label)

    # Reads.

    def _search(self) -> None:
        query, sort, limit = (
            self._draw_query(),
            samples.draw_sort(self._rng),
            self._rng.randint(1, 20),
        )
        parameters: dict[str, str | int] = {"q": query, "limit": limit, **self._draw_read_time()}
        if sort:
            parameters["sort"] = sort
        if facet := not sort and self._rng.random() < 0.2:
            parameters["facet"] = "tags"
        parameters["snippets"] = self._rng.randrange(2)
        found = self._read("search", parameters)
        self._record_search(found, query, sort, 0, limit, facet=facet)

    def _pages(self) -> None:
        """Read all hits of a query page by page; check that all pages are as of one T."""
        query, sort, limit = (
            self._draw_query(),
            samples.draw_sort(self._rng),
            self._rng.randint(3, 9),
        )
        parameters: dict[str, str | int] = {"q": query, "limit": limit, "snippets": 0}
        if sort:
            parameters["sort"] = sort
        found = self._read("search", {**parameters, **self._draw_read_time()})
        at, begin, ids = found["at"], 0, set()
        while True:
            hits = found["hits"]
            assert isinstance(hits, list)
            self._record_search(found, query, sort, begin, limit)
            ids |= {hit["id"] for hit in hits}
            begin += len(hits)
            if found["at"] != at:
                self._history.errors.append(
                    f"a cursor as of {at} returned a page as of {found['at']}"
                )
            if found["cursor"] is None:
                break
            found = self._read("search", {**parameters, "cursor": str(found["cursor"])})
        if not begin == len(ids) == found["total"]:
            counts = f"{begin} hits, {len(ids)} different, of {found['total']} on all pages"
            self._history.errors.append(f"{counts}: {parameters}")

    def _count(self) -> None:
        query = self._draw_query()
        self._record_count(self._read("count", {"q": query, **self._draw_read_time()}), query)

    def _get(self) -> None:
        id = self._own_id() if self._rng.random() < 0.5 else self._shared_id()
        when = self._draw_read_time()
        response = self._request("GET", id, when, other_status=404)
        if response.status_code == 404:
            if "at" in when:
                at = label_of(when["at"])
                self._history.reads.append(ReadResult("get", at, id))
            return
        found = response.json()
        self._check_after(when, found)
        label = label_of(found["label"])
        hits = ((id, 0.0, label),)
        at = label_of(found["at"])
        self._history.reads.append(ReadResult("get", at, id, hits=hits, document=found["document"]))
        if id.startswith("s"):
            self._labels[id] = label

    def _find_new_document(self) -> None:
        """Write a document; check that each of its words matches from its label on, not before."""
        write = self._new_put(self._own_id())
        response = self._request("PUT", write.id, {"key": write.mark}, write.document)
        self._record_success(write, response.json())
        for at, count in ((write.label - 1, 0), (write.label, 1)):
            for word in samples.queries_for_mark(write.mark):
                found = self._read("count", {"q": word, "at": token_of(at)})
                self._record_count(found, word)
                if found["total"] != count:
                    self._history.errors.append(
                        f"{word} as of {at} matches {found['total']} documents: {write}"
                    )

    def _record_search(
        self,
        found: Mapping[str, object],
        query: str,
        sort: str,
        begin: int,
        limit: int,
        *,
        facet: bool = False,
    ) -> None:
        match found:
            case {"at": at, "total": int(total), "hits": list(hits), **rest}:
                pass
        counts = None
        if facet:
            facets = rest.get("facets", {})
            assert isinstance(facets, dict)
            counts = tuple((each["value"], each["count"]) for each in facets.get("tags", ()))
        ranked = tuple((hit["id"], hit["score"], label_of(hit["label"])) for hit in hits)
        result = ReadResult(
            "search", label_of(at), query, sort, begin, limit, total, ranked, counts
        )
        self._history.reads.append(result)
        if result.at > BEGINNING:
            self._past_times.append(result.at)

    def _record_count(self, found: Mapping[str, object], query: str) -> None:
        total = found["total"]
        assert isinstance(total, int)
        at = label_of(found["at"])
        self._history.reads.append(ReadResult("count", at, query, total=total))

    def _draw_query(self) -> str:
        return samples.draw_query(self._rng)

    def _draw_read_time(self) -> dict[str, str | int]:
        """Draw the parameters that select T: none, `after` the last write, or an earlier T."""
        match self._rng.randrange(4):
            case 0 if self._label:
                return {"after": token_of(self._label)}
            case 1 if past := [
                at for at in self._past_times if at > self._past_times[-1] - PAST_AGE_MAX_US
            ]:
                return {"at": token_of(self._rng.choice(past))}
        return {}

    def _read(self, what: str, parameters: Mapping[str, str | int]) -> dict[str, object]:
        response = self._request("GET", "", parameters, path=f"/{what}")
        found: dict[str, object] = response.json()
        self._check_after(parameters, found)
        return found

    def _check_after(
        self, parameters: Mapping[str, str | int], found: Mapping[str, object]
    ) -> None:
        at = label_of(found["at"])
        if not {"at", "cursor"} & parameters.keys():
            if at < self._newest_time:
                self._history.errors.append(
                    f"a read as of {at} follows one as of {self._newest_time}"
                )
            self._newest_time = at
        if at < label_of(parameters.get("after", token_of(0))):
            self._history.errors.append(f"{parameters}: answered as of an earlier T: {found['at']}")
        if parameters.get("at", found["at"]) != found["at"]:
            self._history.errors.append(f"{parameters}: answered as of another T: {found['at']}")

    # Helpers.

    def _request(
        self,
        method: str,
        id: str,
        parameters: Mapping[str, str | int],
        document: Mapping[str, object] | None = None,
        *,
        other_status: int = 200,
        path: str = "",
    ) -> httpx.Response:
        """Retry a request until it is answered with 200 or `other_status`."""
        until = monotonic() + CLIENT_TIMEOUT_S
        last_error = ""
        while monotonic() < until:
            self._request_count += 1
            try:
                response = self._http.request(
                    method, path or f"/documents/{id}", params=dict(parameters), json=document
                )
            except httpx.TransportError as error:
                self._reconnect()
                last_error = repr(error)
            else:
                if response.status_code in (200, other_status):
                    return response
                last_error = response.text
                self._history.retries[f"{response.status_code}"] += 1
                if response.status_code not in RETRYABLE_STATUSES:
                    self._record_unexpected(response)
                    raise AssertionError(f"{method} {path or id} {parameters}: {last_error}")
            self._stop.wait(CLIENT_RETRY_S)
        raise AssertionError(
            f"{method} {path or id} {parameters} was not answered in time: {last_error}"
        )

    def _reconnect(self) -> None:
        """Count a lost connection and open another one."""
        self._history.retries["connection"] += 1
        self._http.close()
        self._http = self._open_http_client()

    def _open_http_client(self) -> httpx.Client:
        return open_http_client(self._url)

    def _record_unexpected(self, response: httpx.Response) -> None:
        request = response.request
        text = f"{request.method} {request.url}: {response.status_code} {response.text}"
        self._history.errors.append(text)

    def _record_success(self, write: WriteAttempt, response: Mapping[str, object]) -> None:
        write.absent = "absent" in response
        write.label = label_of(response["label"])
        self._label = max(self._label, write.label)
        self._past_times.append(write.label)
        if write.id.startswith("s"):
            self._labels[write.id] = write.label if write.kind == "put" else 0

    def _new_put(self, id: str) -> WriteAttempt:
        mark = self._next_mark()
        return self._recorded(WriteAttempt("put", id, mark, samples.draw_document(self._rng, mark)))

    def _new_delete(self, id: str) -> WriteAttempt:
        return self._recorded(WriteAttempt("delete", id, self._next_mark(), None))

    def _recorded(self, write: WriteAttempt) -> WriteAttempt:
        self._history.writes.append(write)
        return write

    def _next_mark(self) -> str:
        self._mark_count += 1
        return f"{self.name}q{self._mark_count}"

    def _own_id(self) -> str:
        return f"{self.name}-{self._rng.randrange(OWN_IDS)}"

    def _shared_id(self) -> str:
        return f"s{self._rng.randrange(SHARED_IDS)}"
