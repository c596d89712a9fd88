"""Locust users of an index: as many writers as readers, and one follower of the changes.

    locust -f bench/experiments/locustfile.py --headless -u 101 -r 100 -t 60s --host http://127.0.0.1:8080

Each writer or reader starts one task per second, when it is due, so 101 users start 50 write tasks
and 50 read tasks per second; a task may send several requests. The load is open-loop as far as
locust allows: a user whose request takes longer than a second starts the next task late, and then
catches up with its schedule. Locust measures from the start of a request; but `fresh` counts from
the due time, and `change` from the time in the label.

A response that is evidently wrong counts as a failure: a document that its writer does not find,
hits out of order, a page as of another T than the page before, a rejected line of a bulk, a change
that arrives twice or out of order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import count
from random import Random
from time import perf_counter, sleep, time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests
from locust import FastHttpUser, User, constant, events, task

from driftline.bench.measuring.corpus import load_documents
from driftline.bench.measuring.load import HITS_MAX, DrawnQuery, Queries
from driftline.serve.views.tokens import time_of

if TYPE_CHECKING:
    from locust.env import Environment

TASK_INTERVAL_S = 1.0
"""Interval between a user's tasks."""

REASONS_MAX, REASON_CHARS_MAX = 20, 300
"""Maximum number of failure reasons to print, most frequent first, and of characters of each."""

PAGES = 3
"""Maximum number of pages that a reader reads of one query."""

BULK = 10
"""Number of documents in a bulk request."""

DOCUMENTS = 500
"""Number of different texts; the documents of all writers use them in turn."""

_documents = load_documents(DOCUMENTS)
_queries = Queries(_documents, seed=7)
_random = Random(7)
_numbers = count(1)


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _print_failures(environment: Environment, **_: object) -> None:
    errors = environment.stats.errors.values()
    for each in sorted(errors, key=lambda each: -each.occurrences)[:REASONS_MAX]:
        text = f"{each.name}: {each.occurrences} failures: {each.error}"
        print(text[:REASON_CHARS_MAX], file=sys.stderr)


class WrongResponse(Exception):
    """Failure of a response that is evidently wrong."""


class _HttpUser(FastHttpUser):
    abstract = True
    network_timeout = 30.0
    connection_timeout = 30.0

    def on_start(self) -> None:
        self._due = perf_counter() + _random.random()  # spread the users over a second
        sleep(self._due - perf_counter())

    def wait_time(self) -> float:
        self._due += TASK_INTERVAL_S
        return max(0.0, self._due - perf_counter())

    def _ask(self, name: str, path: str, *, may_be_missing: bool = False, **request: Any) -> Any:
        """Return the decoded response; None for any status other than 200.

        Such a status counts as a failure in locust's statistics; with `may_be_missing`, 404 does
        not.
        """
        method = request.pop("method", "GET")
        with self.client.request(
            method, path, name=name, catch_response=True, **request
        ) as response:
            if response.status_code == 200:
                return json.loads(response.text)
            if may_be_missing and response.status_code == 404:
                response.success()
            else:
                response.failure(f"status {response.status_code}")
            return None

    def _report(self, name: str, began: float, problem: str = "") -> None:
        self.environment.events.request.fire(
            request_type="user",
            name=name,
            response_time=1000 * (perf_counter() - began),
            response_length=0,
            exception=WrongResponse(problem) if problem else None,
            context={},
        )


class Writer(_HttpUser):
    """User that puts documents, finds them, and deletes some."""

    weight = 1

    def on_start(self) -> None:
        super().on_start()
        self._document_ids: list[str] = []

    @task(10)
    def put(self) -> None:
        """Put a document, and find it by a word that only this document has."""
        id, document, word = self._new_document()
        put = self._ask("put", f"/documents/{id}", method="PUT", json=document)
        if put is None:
            return
        label = put["label"]
        found = self._ask("find", f"/search?q={word}&limit={HITS_MAX}&snippets=0&after={label}")
        if found is not None:
            is_found = [hit["id"] for hit in found["hits"]] == [id] and found["at"] >= label
            self._report("fresh", self._due, "" if is_found else "not found")

    @task(2)
    def delete(self) -> None:
        """Delete one of the user's own documents."""
        if self._document_ids:
            id = self._document_ids.pop(_random.randrange(len(self._document_ids)))
            self._ask("delete", f"/documents/{id}", method="DELETE")

    @task(1)
    def bulk(self) -> None:
        """Put several documents at once."""
        began = perf_counter()
        documents = [self._new_document() for _ in range(BULK)]
        body = "".join(json.dumps({"id": id, **document}) + "\n" for id, document, _ in documents)
        with self.client.post(
            "/documents:bulk", data=body, name="bulk", catch_response=True
        ) as response:
            answers = [json.loads(line) for line in (response.text or "").split("\n") if line]
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
                return
        for (id, _, _), answer in zip(documents, answers, strict=False):
            if answer.get("id") != id or "label" not in answer:
                self._report("bulk", began, f"a line was refused: {answer}")
        if len(answers) != len(documents):
            self._report("bulk", began, f"{len(answers)} of {len(documents)} lines were answered")

    def _new_document(self) -> tuple[str, dict[str, object], str]:
        """Return (id, body, a word that no other document has) of a new document."""
        number = next(_numbers)
        id, word = f"locust-{number}", f"locustword{number}"
        _, text = _documents[number % len(_documents)]
        self._document_ids.append(id)
        return id, {"text": f"{text} {word}"}, word


class Reader(_HttpUser):
    """User that searches, counts, pages, and reads documents."""

    weight = 1

    @task(10)
    def search(self) -> None:
        """Send a query of a random kind."""
        query = _queries.draw()
        self._search(f"search {query.kind}", f"/search?q={_url_text(query)}&limit={HITS_MAX}")

    @task(2)
    def count(self) -> None:
        """Count the documents that match a query."""
        self._ask("count", f"/count?q={_url_text(_queries.draw())}")

    @task(1)
    def pages(self) -> None:
        """Read several pages of hits, all as of one T."""
        path = f"/search?q={_url_text(_queries.draw_of_kind('union2'))}&limit={HITS_MAX}&snippets=0"
        began, cursor, at, seen = perf_counter(), "", "", list[str]()
        for _ in range(PAGES):
            found = self._search("page", path + (f"&cursor={cursor}" if cursor else ""))
            if found is None:
                return
            seen += [hit["id"] for hit in found["hits"]]
            if (at and found["at"] != at) or len(set(seen)) < len(seen):
                self._report("page", began, "as of another T, or a hit comes twice")
            at, cursor = found["at"], found["cursor"]
            if not cursor:
                return

    @task(2)
    def get(self) -> None:
        """Read a document, whether or not a writer has put it already."""
        id = f"locust-{_random.randrange(1, 2000)}"
        self._ask("get", f"/documents/{id}", may_be_missing=True)

    def _search(self, name: str, path: str) -> Any:
        began = perf_counter()
        found = self._ask(name, path)
        if found is not None:
            scores = [hit["score"] for hit in found["hits"]]
            if len(scores) > HITS_MAX or scores != sorted(scores, reverse=True):
                self._report("search", began, "hits are out of order, or too many")
        return found


class ChangeFollower(User):
    """User that follows the change stream; reports the age of a change as response time."""

    fixed_count = 1
    wait_time = constant(TASK_INTERVAL_S)

    def on_start(self) -> None:
        self._last = ""

    @task
    def follow(self) -> None:
        """Follow the stream from the last change on, until the connection ends."""
        path = "/changes" + (f"?from={self._last}" if self._last else "")
        try:
            with requests.get(f"{self.host}{path}", stream=True, timeout=60) as answer:
                answer.raise_for_status()
                event: dict[str, str] = {}
                for line in answer.iter_lines():  # bytes: str has more line separators
                    if line:
                        name, _, value = line.decode().partition(": ")
                        event[name] = value
                    elif event:
                        self._record_event(event)
                        event = {}
        except requests.RequestException as error:
            self._report("follow", 0.0, error)

    def _record_event(self, event: Mapping[str, str]) -> None:
        """Report the age of a change, and remember the position in the stream.

        An event `time` reports no change and only moves the position.
        """
        label = event["id"]
        if event.get("event") == "time":
            self._last = max(self._last, label)
            return
        age_ms = 1000 * time() - (time_of(label) - 1) / 1000
        is_wrong = label <= self._last
        problem = WrongResponse("not after the previous change") if is_wrong else None
        self._report("change", age_ms, problem)
        self._last = label

    def _report(self, name: str, ms: float, error: Exception | None) -> None:
        self.environment.events.request.fire(
            request_type="stream",
            name=name,
            response_time=ms,
            response_length=0,
            exception=error,
            context={},
        )


def _url_text(query: DrawnQuery) -> str:
    return quote(query.text(), safe="")
