"""Fills a served index, and puts a load on it, over HTTP.

The load is an open loop: each request is begun when it is due, on a connection of its own if others
are still busy, whatever became of those before. It is made by threads that wait in the kernel: an
asyncio client would take longer than the service for many an answer, and its timers have whole
milliseconds.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from time import perf_counter, sleep
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.http import Client
from driftline.bench.measuring.load import LIMIT, Arriving, Asked, Load, Observed
from driftline.bench.measuring.loops import undisturbed
from driftline.bench.measuring.queries import Query
from driftline.engine.errors import Unavailable

BLOCK_BYTES = 1 << 16
"""Lines of a bulk are sent in blocks of this size."""

FILLS_WITHIN_S = 600.0


def fill(url: str, documents: Documents) -> float:
    """Put documents in by one bulk. Returns documents a second, until a query finds the last one.

    Raises Unavailable if one is not taken, or not found.
    """
    began = perf_counter()
    label = put_in(url, [{"id": id, "text": text} for id, text in documents])
    found = _counted(f"{url}/count?q=*&after={label}", began + FILLS_WITHIN_S)
    seconds = perf_counter() - began
    if found != len(documents):
        raise Unavailable(f"{len(documents)} documents were put in, and {found} are found")
    return len(documents) / seconds


def _counted(url: str, until: float) -> int:
    """How many are found, once all can be: the views may be many seconds behind a large bulk."""
    while True:
        try:
            with urlopen(url, timeout=FILLS_WITHIN_S) as answer:
                return int(json.load(answer)["total"])
        except HTTPError as error:
            if error.code != http.client.SERVICE_UNAVAILABLE or perf_counter() > until:
                raise Unavailable(f"{url} is answered by {error.read().decode()}") from None


def put_in(url: str, documents: Sequence[Mapping[str, object]]) -> str:
    """Put documents in by one bulk. Returns the label of the last one.

    Raises Unavailable if one is not taken.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=FILLS_WITHIN_S)
    connection.request("POST", "/documents:bulk", _blocks(documents), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    answers = [json.loads(line) for line in connection.getresponse().read().splitlines()]
    connection.close()
    refused = [answer for answer in answers if "error" in answer]
    if refused or len(answers) != len(documents):
        first = refused[0]["error"] if refused else "lines without an answer"
        raise Unavailable(f"{len(documents) - len(answers) + len(refused)} documents were not "
                          f"taken: {first}")  # fmt: skip
    return max(str(each["label"]) for each in answers)


def _blocks(lines: Sequence[Mapping[str, object]]) -> Iterator[bytes]:
    block = bytearray()
    for line in lines:
        block += json.dumps(line).encode() + b"\n"
        if len(block) >= BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def drive(url: str, load: Load, observed: Observed, sample: Callable[[], None]) -> None:
    """Put the load on the service. `sample`: is called when what counts begins, and at the end."""
    with undisturbed():
        _Drive(url, load, observed).all(sample)


Request = Callable[[Client], None]


class _Drive:
    """Threads that take turns: one waits until the next request is due. Then another one, which has
    nothing to do or is new, waits for the next but one: so no request waits for one before it."""

    def __init__(self, url: str, load: Load, observed: Observed) -> None:
        self._url = url
        self._load = load
        self._observed = observed
        self._began = 0.0
        self._due: Iterator[tuple[float, Request]] = iter(())
        self._threads: list[threading.Thread] = []
        self._idle: list[threading.Lock] = []
        """What each thread with nothing to do waits for; the one that was last is the first to go
        on, as a cache has most of what it needs."""
        self._over = False
        self._counting = threading.Lock()
        self._failed: list[BaseException] = []

    def all(self, sample: Callable[[], None]) -> None:
        load = self._load
        bodies = [json.dumps({"text": each.text}).encode() for each in load.arriving]
        paths = [
            f"/search?q={quote(written(each.query))}&limit={LIMIT}&snippets=0"
            for each in load.asked
        ]
        due: list[tuple[float, Request]] = [
            *((each.due_s, partial(self._put, each, body))
              for each, body in zip(load.arriving, bodies, strict=True)),
            *((each.due_s, partial(self._ask, each, path))
              for each, path in zip(load.asked, paths, strict=True)),
            (load.warmup_s, lambda client: sample()),
        ]  # fmt: skip
        self._due = iter(sorted(due, key=lambda each: each[0]))
        self._began = perf_counter() + 0.1
        self._let_another_wait()
        for thread in self._threads:  # it grows meanwhile
            thread.join()
        if self._failed:
            raise self._failed[0]
        sample()

    def _let_another_wait(self) -> None:
        if self._idle:
            self._idle.pop().release()
        else:
            self._threads.append(threading.Thread(target=self._take_turns, daemon=True))
            self._threads[-1].start()

    def _take_turns(self) -> None:
        client, turn = Client(self._url), threading.Lock()
        turn.acquire()
        try:
            while not self._over:
                self._take_turn(client)
                self._idle.append(turn)
                if not self._over:
                    turn.acquire()
        except BaseException as error:
            self._failed.append(error)
            self._end()
        client.close()

    def _take_turn(self, client: Client) -> None:
        """Wait for the next request, and make it."""
        due = next(self._due, None)
        if due is None:
            self._end()
            return
        due_s, request = due
        while (pause := self._began + due_s - perf_counter()) > 0:
            sleep(pause)
        self._let_another_wait()
        request(client)

    def _end(self) -> None:
        """No request is left: let those end who have nothing to do."""
        self._over = True
        while self._idle:
            self._idle.pop().release()

    def _put(self, each: Arriving, body: bytes, client: Client) -> None:
        self._late(each.due_s)
        path = f"/documents/{quote(each.id, safe='')}"
        answer = self._answer("put", client, "PUT", path, body)
        if answer is None:
            return
        acknowledged = self._since(each.due_s)
        path = f"/search?q={each.word}&limit=1&snippets=0&after={answer['label']}"
        found = self._answer("fresh query", client, "GET", path)
        fresh = self._since(each.due_s)
        if found is None:
            return
        if [hit["id"] for hit in found["hits"]] != [each.id]:  # type: ignore[attr-defined]
            self._count("not found")
        elif each.due_s >= self._load.warmup_s:
            self._observed.acknowledged.append(acknowledged)
            self._observed.freshness.append(fresh)

    def _ask(self, each: Asked, path: str, client: Client) -> None:
        self._late(each.due_s)
        answer = self._answer(each.query.kind, client, "GET", path)
        if answer is not None and each.due_s >= self._load.warmup_s:
            self._observed.queries.setdefault(each.query.kind, []).append(self._since(each.due_s))

    def _answer(
        self, what: str, client: Client, method: str, path: str, body: bytes = b""
    ) -> dict[str, object] | None:
        """The answer; None if there is none, or an error, which is counted."""
        try:
            status, data = client.ask(method, path, body)
        except OSError as error:
            self._count(f"{what}: {type(error).__name__}")
            return None
        if status == HTTPStatus.OK:
            answer = json.loads(data)
            assert isinstance(answer, dict)
            return answer
        self._count(f"{what}: status {status}")
        return None

    def _count(self, error: str) -> None:
        with self._counting:
            self._observed.errors[error] += 1

    def _since(self, due_s: float) -> float:
        return 1000 * (perf_counter() - self._began - due_s)

    def _late(self, due_s: float) -> None:
        if due_s >= self._load.warmup_s:
            self._observed.late.append(self._since(due_s))


def written(query: Query) -> str:
    """A query in the language of Driftline."""
    if query.kind == "phrase":
        return '"' + " ".join(query.words) + '"'
    return (" OR " if query.kind.startswith("union") else " ").join(query.words)
