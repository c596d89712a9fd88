"""HTTP load generator: fills a served index and sends it an open-loop load.

Each request starts when it is due, regardless of earlier requests; if all connections are busy, it
opens another one. One thread generates the load and waits in `select`. An asyncio client would need
more time for many requests than the service, and its timers have millisecond resolution.
"""

from __future__ import annotations

import json
import select
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from time import perf_counter, sleep
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.load import LIMIT, DocumentArrival, Load, Measurements, QueryArrival
from driftline.bench.measuring.loops import without_gc_pauses
from driftline.engine.errors import Unavailable

BLOCK_BYTES = 1 << 16
"""Size from which the collected lines of a bulk are sent as a block."""

FILL_TIMEOUT_S = 600.0

READ_BYTES = 1 << 16

CONNECTIONS_MAX = 500
"""Limit of busy connections; further requests wait. `select` accepts file numbers below 1,024."""


def fill(url: str, documents: Documents) -> float:
    """Insert documents in one bulk. Return documents per second until a query finds all of them.

    Raises Unavailable if a document is refused or not found.
    """
    began = perf_counter()
    bulk = Request(f"{url}/documents:bulk", _blocks(documents), method="POST")
    with urlopen(bulk, timeout=FILL_TIMEOUT_S) as lines:
        answers = [json.loads(line) for line in lines]
    refused = [answer for answer in answers if "error" in answer]
    if refused or len(answers) != len(documents):
        first = refused[0]["error"] if refused else "lines without an answer"
        missing = len(documents) - len(answers) + len(refused)
        raise Unavailable(f"{missing} documents were not taken: {first}")
    label = max(str(answer["label"]) for answer in answers)
    found = _count(f"{url}/count?q=*&after={label}", began + FILL_TIMEOUT_S)
    seconds = perf_counter() - began
    if found != len(documents):
        raise Unavailable(f"{len(documents)} documents were put in, and {found} are found")
    return len(documents) / seconds


def _count(url: str, until: float) -> int:
    """Return the count from `url`. Retry on status 503, since views may lag a bulk by seconds.

    Raises Unavailable for another status, or after `until`.
    """
    while True:
        try:
            with urlopen(url, timeout=FILL_TIMEOUT_S) as answer:
                return int(json.load(answer)["total"])
        except HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or perf_counter() > until:
                raise Unavailable(f"{url} is answered by {error.read().decode()}") from None


def _blocks(documents: Documents) -> Iterator[bytes]:
    """Yield the lines of a bulk in blocks of BLOCK_BYTES, for a chunked body."""
    block = bytearray()
    for id, text in documents:
        block += json.dumps({"id": id, "text": text}).encode() + b"\n"
        if len(block) >= BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def drive(url: str, load: Load, observed: Measurements, sample: Callable[[], None]) -> None:
    """Run the load on the service. `sample` is called at the end of the warm-up and of the load."""
    with without_gc_pauses():
        _LoadThread(url, load, observed).run(sample)


class HttpClient:
    """HTTP/1.1 client, minimal because its cost is part of the measurement.

    A client has one connection to one server, and one request at a time; it reconnects after the
    server closes the connection. Sending and receiving are separate calls, so one thread can use
    many clients. Responses need a Content-Length; streams are not supported. Precondition of
    `fileno` and `take`: a request was sent.
    """

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        self._server_address = found.hostname or "127.0.0.1", found.port or 80
        self._head = f"Host: {found.netloc}\r\n"
        self._socket: socket.socket | None = None
        self._received = b""
        """The part of the response received so far."""

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request. Raises OSError."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n"
        self._received = b""
        try:
            self._connection().sendall(head.encode() + body)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the file descriptor, for `select`; it is readable when more data arrives."""
        assert self._socket is not None
        return self._socket.fileno()

    def take(self) -> tuple[int, bytes] | None:
        """Receive more of the response; return status and body once it is complete, else None.

        Raises OSError.
        """
        assert self._socket is not None
        try:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._received += data
            return _parse_response(self._received)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connection(self) -> socket.socket:
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()  # readable without a request: the server closed it
        if self._socket is None:
            self._socket = socket.create_connection(self._server_address)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


def _parse_response(data: bytes) -> tuple[int, bytes] | None:
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        raise ConnectionError("an answer has no length")
    size = end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0])
    if len(data) < size:
        return None
    return int(head.split(b" ", 2)[1]), data[end + 4 : size]


Asking = Generator[tuple[str, str, bytes], tuple[int, bytes], None]
"""A sequence of requests, each sent after the previous response.

The generator yields (method, path, body) and receives (status, body). If a request fails, OSError
is thrown into the generator.
"""


class _LoadThread:
    """Single-threaded loop that sleeps until a request is due or response data arrives.

    With several threads, which would wake each other just when a request is due, the measured
    freshness would be a seventh longer.
    """

    def __init__(self, url: str, load: Load, observed: Measurements) -> None:
        self._url = url
        self._load = load
        self._observed = observed
        self._began = 0.0
        self._idle: list[HttpClient] = []
        """A stack: the client used last is reused first, while caches are still warm."""
        self._busy: dict[HttpClient, Asking] = {}
        """Client -> the sequence whose request it has sent."""

    def run(self, sample: Callable[[], None]) -> None:
        load = self._load
        bodies = [json.dumps({"text": each.text}).encode() for each in load.document_arrivals]
        paths = [
            f"/search?q={quote(each.query.text())}&limit={LIMIT}&snippets=0"
            for each in load.query_arrivals
        ]
        due: list[tuple[float, Asking]] = [
            *((each.due_s, self._put(each, body))
              for each, body in zip(load.document_arrivals, bodies, strict=True)),
            *((each.due_s, self._ask(each, path))
              for each, path in zip(load.query_arrivals, paths, strict=True)),
        ]  # fmt: skip
        waiting = deque(sorted(due, key=lambda each: each[0]))
        with ThreadPoolExecutor(1) as beside:
            self._began = perf_counter()
            sampled = beside.submit(_later, load.warmup_s, sample)
            while waiting or self._busy:
                pause_s = self._begin_due(waiting)
                if pause_s is None and not self._busy:
                    continue  # the requests just started have already failed
                come, _, _ = select.select(self._busy, (), (), pause_s)
                for client in come:
                    self._take(client)
        for client in self._idle:
            client.close()
        sampled.result()
        sample()

    def _begin_due(self, waiting: deque[tuple[float, Asking]]) -> float | None:
        """Start the requests that are due. Return the seconds until the next one is due.

        Return None if no request is left, or the next one has to wait for a connection.
        """
        while waiting and len(self._busy) < CONNECTIONS_MAX:
            pause_s = self._began + waiting[0][0] - perf_counter()
            if pause_s > 0:
                return pause_s
            due_s, asking = waiting.popleft()
            client = self._idle.pop() if self._idle else HttpClient(self._url)
            if due_s >= self._load.warmup_s:
                self._observed.send_delay_ms.append(self._elapsed_ms(due_s))
            self._send_next(client, asking, partial(next, asking))
        return None

    def _take(self, client: HttpClient) -> None:
        asking = self._busy[client]
        try:
            answer = client.take()
        except OSError as error:
            step = partial(asking.throw, error)
        else:
            if answer is None:
                return
            step = partial(asking.send, answer)
        del self._busy[client]
        self._send_next(client, asking, step)

    def _send_next(
        self, client: HttpClient, asking: Asking, step: Callable[[], tuple[str, str, bytes]]
    ) -> None:
        try:
            client.send(*step())
        except StopIteration:
            self._idle.append(client)
        except OSError as error:
            self._send_next(client, asking, partial(asking.throw, error))
        else:
            self._busy[client] = asking

    def _put(self, each: DocumentArrival, body: bytes) -> Asking:
        path = f"/documents/{quote(each.id, safe='')}"
        answer = yield from self._answer("put", "PUT", path, body)
        if answer is None:
            return
        acknowledged = self._elapsed_ms(each.due_s)
        path = f"/search?q={each.word}&limit=1&snippets=0&after={answer['label']}"
        found = yield from self._answer("fresh query", "GET", path)
        fresh = self._elapsed_ms(each.due_s)
        if found is None:
            return
        if [hit["id"] for hit in found["hits"]] != [each.id]:  # type: ignore[attr-defined]
            self._observed.errors["not found"] += 1
        elif each.due_s >= self._load.warmup_s:
            self._observed.acknowledged_ms.append(acknowledged)
            self._observed.freshness_ms.append(fresh)

    def _ask(self, each: QueryArrival, path: str) -> Asking:
        answer = yield from self._answer(each.query.kind, "GET", path)
        if answer is not None and each.due_s >= self._load.warmup_s:
            self._observed.queries.setdefault(each.query.kind, []).append(
                self._elapsed_ms(each.due_s)
            )

    def _answer(
        self, what: str, method: str, path: str, body: bytes = b""
    ) -> Generator[tuple[str, str, bytes], tuple[int, bytes], dict[str, object] | None]:
        """Return the response; None for a failed request or an error status, which are counted."""
        try:
            status, data = yield method, path, body
        except OSError as error:
            self._observed.errors[f"{what}: {type(error).__name__}"] += 1
            return None
        if status == HTTPStatus.OK:
            answer = json.loads(data)
            assert isinstance(answer, dict)
            return answer
        self._observed.errors[f"{what}: status {status}"] += 1
        return None

    def _elapsed_ms(self, due_s: float) -> float:
        return 1000 * (perf_counter() - self._began - due_s)


def _later(pause_s: float, call: Callable[[], None]) -> None:
    sleep(pause_s)
    call()
