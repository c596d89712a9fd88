"""Users of an index for locust: as many who write as who read, and one who follows the changes.

    locust -f bench/load/locustfile.py --headless -u 101 -r 101 -t 60s --host http://127.0.0.1:8080

Each user who writes or reads begins one thing a second, when it is due: so 101 users are 50 writes
and 50 reads a second. It is as open as a loop of locust can be: a user whose request takes longer
begins the next one late, and those after it sooner, until it is in time again. Locust counts from
the beginning of a request; `fresh` alone counts from when it was due.

`--record FILE` notes every answer (`bench.load.answers`). What an answer itself shows to be wrong
is a failure: a document that its writer does not find, hits out of order, a page as of another T,
a change that comes twice or too early.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from random import Random
from time import perf_counter, sleep, time
from typing import TYPE_CHECKING
from urllib.parse import quote

import requests
from locust import FastHttpUser, User, constant, events, task

from driftline.bench.load.answers import Answers, hits_of
from driftline.bench.measuring.corpus import load_documents
from driftline.bench.measuring.queries import Queries
from driftline.bench.measuring.served import written
from driftline.serve.views.tokens import time_of

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

EVERY_S = 1.0
"""So often a user does something."""

REASONS, REASON_MAX = 20, 300
"""Reasons of failures that are told, the most frequent ones, and characters of each."""

LIMIT = 10
PAGES = 3
BULK = 10
DOCUMENTS = 2000
_documents = load_documents(DOCUMENTS)
_queries = Queries(_documents, seed=7)
_random = Random(7)
_numbers = count(1)
_answers = Answers(None)


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _options(parser: LocustArgumentParser) -> None:
    parser.add_argument("--record", default="", help="File for all answers, as JSON lines.")


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _begin(environment: Environment, **_: object) -> None:
    global _answers
    record = environment.parsed_options.record if environment.parsed_options else ""
    _answers = Answers(Path(record) if record else None)


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _end(environment: Environment, **_: object) -> None:
    _answers.close()
    errors = environment.stats.errors.values()
    for each in sorted(errors, key=lambda each: -each.occurrences)[:REASONS]:
        text = f"{each.name}: {each.occurrences} failures: {each.error}"
        print(text[:REASON_MAX], file=sys.stderr)


class Wrong(Exception):
    """An answer is wrong by itself."""


class _Client(FastHttpUser):
    abstract = True
    network_timeout = 30.0
    connection_timeout = 30.0

    def on_start(self) -> None:
        self._due = perf_counter() + _random.random()  # not all users at the same moment
        sleep(self._due - perf_counter())

    def wait_time(self) -> float:
        self._due += EVERY_S
        return max(0.0, self._due - perf_counter())

    def _json(self, name: str, path: str) -> dict[str, object] | None:
        """The answer to a read; None if it failed, which locust has counted."""
        with self.client.get(path, name=name, catch_response=True) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
                return None
            found: dict[str, object] = json.loads(response.text)
            return found

    def _tell(self, name: str, began: float, wrong: str = "") -> None:
        self.environment.events.request.fire(
            request_type="user",
            name=name,
            response_time=1000 * (perf_counter() - began),
            response_length=0,
            exception=Wrong(wrong) if wrong else None,
            context={},
        )


class Writer(_Client):
    """Puts documents, finds them, and deletes some."""

    weight = 1

    def on_start(self) -> None:
        super().on_start()
        self._own: list[str] = []

    @task(10)
    def put(self) -> None:
        """A document is put, and found by a word that only it has."""
        id, document, word = self._new()
        label = self._written("put", id, document)
        if label is None:
            return
        found = self._json("find", f"/search?q={word}&limit={LIMIT}&snippets=0&after={label}")
        if found is not None:
            hits, at = _noted(found, word, LIMIT, 0)
            wrong = "" if [hit["id"] for hit in hits] == [id] and at >= label else "not found"
            self._tell("fresh", self._due, wrong)

    @task(2)
    def delete(self) -> None:
        """A document of one's own is deleted."""
        if self._own:
            id = self._own.pop(_random.randrange(len(self._own)))
            self._written("delete", id, None)

    @task(1)
    def bulk(self) -> None:
        """Several at once."""
        lines = [self._new() for _ in range(BULK)]
        body = "".join(json.dumps({"id": id, **document}) + "\n" for id, document, _ in lines)
        with self.client.post(
            "/documents:bulk", data=body, name="bulk", catch_response=True
        ) as response:
            told = [json.loads(line) for line in (response.text or "").splitlines()]
            if response.status_code != 200 or [each.get("id") for each in told] != [
                id for id, _, _ in lines
            ]:
                response.failure(f"status {response.status_code}, {len(told)} lines")
                return
            for (id, document, _), answer in zip(lines, told, strict=True):
                if "label" in answer:
                    _answers.note(put=id, label=answer["label"], document=document)
                else:
                    response.failure(f"a line was refused: {answer['error']['code']}")

    def _new(self) -> tuple[str, dict[str, object], str]:
        number = next(_numbers)
        id, word = f"locust-{number}", f"locustword{number}"
        _, text = _documents[number % len(_documents)]
        self._own.append(id)
        return id, {"text": f"{text} {word}"}, word

    def _written(self, what: str, id: str, document: Mapping[str, object] | None) -> str | None:
        path = f"/documents/{id}"
        method = "DELETE" if document is None else "PUT"
        with self.client.request(
            method, path, name=what, json=document, catch_response=True
        ) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
                return None
            label = str(json.loads(response.text)["label"])
        _answers.note(**{what: id}, label=label, **({"document": document} if document else {}))
        return label


class Reader(_Client):
    """Searches, counts, pages, and reads documents."""

    weight = 1

    @task(10)
    def search(self) -> None:
        """A query of any form."""
        query = _queries.draw()
        q = written(query)
        found = self._json(f"search {query.kind}", f"/search?q={_quoted(q)}&limit={LIMIT}")
        if found is not None:
            self._check(found, q, 0)

    @task(2)
    def count(self) -> None:
        """How many there are."""
        q = written(_queries.draw())
        found = self._json("count", f"/count?q={_quoted(q)}")
        if found is not None:
            _answers.note(q=q, at=found["at"], total=found["total"])

    @task(1)
    def pages(self) -> None:
        """Some pages of hits, as of one T."""
        q = written(_queries.of("union2"))
        path = f"/search?q={_quoted(q)}&limit={LIMIT}&snippets=0"
        cursor, at, seen = "", "", list[str]()
        for _ in range(PAGES):
            found = self._json("page", path + (f"&cursor={cursor}" if cursor else ""))
            if found is None:
                return
            began = perf_counter()
            hits = self._check(found, q, len(seen))
            seen += [str(hit["id"]) for hit in hits]
            if (at and found["at"] != at) or len(set(seen)) < len(seen):
                self._tell("page", began, "as of another T, or a hit comes twice")
            at, cursor = str(found["at"]), str(found["cursor"] or "")
            if not cursor:
                return

    @task(2)
    def get(self) -> None:
        """A document, as far as there is one."""
        id = f"locust-{_random.randrange(1, 2000)}"
        with self.client.get(f"/documents/{id}", name="get", catch_response=True) as response:
            if response.status_code == 404:
                response.success()
            elif response.status_code != 200:
                response.failure(f"status {response.status_code}")
            else:
                found = json.loads(response.text)
                _answers.note(
                    get=id, at=found["at"], label=found["label"], document=found["document"]
                )

    def _check(self, found: Mapping[str, object], q: str, begin: int) -> list[dict[str, object]]:
        began = perf_counter()
        hits, _ = _noted(found, q, LIMIT, begin)
        scores = [float(str(hit["score"])) for hit in hits]
        if scores != sorted(scores, reverse=True):
            self._tell("search", began, "hits are out of order")
        return hits


class Follower(User):
    """Follows the change stream; how old a change is when it comes counts as its response time."""

    fixed_count = 1
    wait_time = constant(EVERY_S)

    def on_start(self) -> None:
        self._last = ""

    @task
    def follow(self) -> None:
        """Follow from where it was, until the connection ends."""
        path = "/changes" + (f"?from={self._last}" if self._last else "")
        try:
            with requests.get(f"{self.host}{path}", stream=True, timeout=60) as answer:
                answer.raise_for_status()
                event: dict[str, str] = {}
                for line in answer.iter_lines():  # of bytes: texts have more ends of lines
                    if line:
                        name, _, value = line.decode().partition(": ")
                        event[name] = value
                    elif event:
                        self._take(event)
                        event = {}
        except requests.RequestException as error:
            self._fire("follow", 0.0, error)

    def _take(self, event: Mapping[str, str]) -> None:
        label = event["id"]
        if event.get("event") == "time":
            self._last = max(self._last, label)
            return
        age_ms = 1000 * time() - (time_of(label) - 1) / 1000
        wrong = Wrong("not after the one before") if label <= self._last else None
        self._fire("change", age_ms, wrong)
        self._last = label
        _answers.note(change=json.loads(event["data"]), label=label)

    def _fire(self, name: str, ms: float, error: Exception | None) -> None:
        self.environment.events.request.fire(
            request_type="stream",
            name=name,
            response_time=ms,
            response_length=0,
            exception=error,
            context={},
        )


def _noted(
    found: Mapping[str, object], q: str, limit: int, begin: int
) -> tuple[list[dict[str, object]], str]:
    """The hits of an answer, and as of which T they are; noted."""
    hits = found["hits"]
    assert isinstance(hits, list)
    at = str(found["at"])
    _answers.note(q=q, at=at, limit=limit, begin=begin, hits=hits_of(hits), total=found["total"])
    return hits, at


def _quoted(q: str) -> str:
    return quote(q, safe="")
