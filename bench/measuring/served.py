"""HTTP load generator: fills a served index and sends it an open-loop load.

Each request starts when it is due, regardless of earlier requests; if all connections are busy, it
opens another one. One thread generates the load and waits in `select`. For many requests, an
asyncio client would need more time than the service; and its timers have millisecond resolution.
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
from driftline.bench.measuring.load import (
    HITS_MAX,
    DocumentArrival,
    Load,
    Measurements,
    QueryArrival,
)
from driftline.bench.measuring.loops import without_gc_pauses
from driftline.engine.errors import Unavailable

BLOCK_BYTES = 1 << 16
"""Size from which the collected lines of a bulk are sent as a block."""

FILL_TIMEOUT_S = 600.0

READ_BYTES = 1 << 16

CONNECTIONS_MAX = 500
"""Limit of busy connections; further requests wait. `select` accepts file numbers below 1,024."""


def fill(url: str, documents: Documents) -> float:
    """Insert documents in one bulk. Return documents per second until a query counts all of them.

    Raises Unavailable if the service rejects or does not count a document.
    """
    start = perf_counter()
    bulk = Request(f"{url}/documents:bulk", _blocks(documents), method="POST")
    with urlopen(bulk, timeout=FILL_TIMEOUT_S) as lines:
        answers = [json.loads(line) for line in lines]
    errors = [answer["error"] for answer in answers if "error" in answer]
    if errors or len(answers) != len(documents):
        reason = errors[0] if errors else "the service did not answer their lines"
        missing = len(documents) - len(answers) + len(errors)
        raise Unavailable(f"{missing} of {len(documents)} documents were not inserted: {reason}")
    label = max(str(answer["label"]) for answer in answers)
    count = _count(f"{url}/count?q=*&after={label}", start + FILL_TIMEOUT_S)
    seconds = perf_counter() - start
    if count != len(documents):
        raise Unavailable(f"{len(documents)} documents were inserted, but a query counts {count}")
    return len(documents) / seconds


def _count(url: str, deadline: float) -> int:
    """Return the count from `url`. Retry on status 503, since views may lag a bulk by seconds.

    Raises Unavailable for another status, or after `deadline` (by `perf_counter`).
    """
    while True:
        try:
            with urlopen(url, timeout=FILL_TIMEOUT_S) as answer:
                return int(json.load(answer)["total"])
        except HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or perf_counter() > deadline:
                answer = error.read().decode()
                raise Unavailable(f"GET {url} failed with status {error.code}: {answer}") from None


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
    """Run the load on the service. Call `sample` at the end of the warm-up and of the load."""
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
        parts = urlsplit(url)
        self._server_address = parts.hostname or "127.0.0.1", parts.port or 80
        self._host_header = f"Host: {parts.netloc}\r\n"
        self._socket: socket.socket | None = None
        self._received = b""
        """The part of the response received so far."""

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request. Raises OSError."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._host_header}{length}\r\n"
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
    header = head.find(b"\r\ncontent-length:")
    if header < 0:
        raise ConnectionError("a response has no Content-Length")
    size = end + 4 + int(head[header + 17 :].split(b"\r\n", 1)[0])
    if len(data) < size:
        return None
    return int(head.split(b" ", 2)[1]), data[end + 4 : size]


Requests = Generator[tuple[str, str, bytes], tuple[int, bytes], None]
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
        self._start_s = 0.0
        """Start of the load, by `perf_counter`."""
        self._idle: list[HttpClient] = []
        """A stack: the client used last is reused first, while caches are still warm."""
        self._busy: dict[HttpClient, Requests] = {}
        """Client -> the sequence whose request it has sent."""

    def run(self, sample: Callable[[], None]) -> None:
        load = self._load
        bodies = [json.dumps({"text": each.text}).encode() for each in load.document_arrivals]
        paths = [
            f"/search?q={quote(each.query.text())}&limit={HITS_MAX}&snippets=0"
            for each in load.query_arrivals
        ]
        sequences: list[tuple[float, Requests]] = [
            *((each.due_s, self._put(each, body))
              for each, body in zip(load.document_arrivals, bodies, strict=True)),
            *((each.due_s, self._query(each, path))
              for each, path in zip(load.query_arrivals, paths, strict=True)),
        ]  # fmt: skip
        pending = deque(sorted(sequences, key=lambda each: each[0]))
        with ThreadPoolExecutor(1) as executor:
            self._start_s = perf_counter()
            first_sample = executor.submit(_call_after, load.warmup_s, sample)
            while pending or self._busy:
                pause_s = self._start_due(pending)
                if pause_s is None and not self._busy:
                    continue  # the requests just started have already failed
                readable, _, _ = select.select(self._busy, (), (), pause_s)
                for client in readable:
                    self._receive(client)
        for client in self._idle:
            client.close()
        first_sample.result()
        sample()

    def _start_due(self, pending: deque[tuple[float, Requests]]) -> float | None:
        """Start the sequences that are due. Return the seconds until the next one is due.

        Return None if no sequence is left, or the next one has to wait for a connection.
        """
        while pending and len(self._busy) < CONNECTIONS_MAX:
            pause_s = self._start_s + pending[0][0] - perf_counter()
            if pause_s > 0:
                return pause_s
            due_s, requests = pending.popleft()
            client = self._idle.pop() if self._idle else HttpClient(self._url)
            if due_s >= self._load.warmup_s:
                self._observed.send_delay_ms.append(self._elapsed_ms(due_s))
            self._send_next(client, requests, partial(next, requests))
        return None

    def _receive(self, client: HttpClient) -> None:
        requests = self._busy[client]
        try:
            answer = client.take()
        except OSError as error:
            step = partial(requests.throw, error)
        else:
            if answer is None:
                return
            step = partial(requests.send, answer)
        del self._busy[client]
        self._send_next(client, requests, step)

    def _send_next(
        self, client: HttpClient, requests: Requests, step: Callable[[], tuple[str, str, bytes]]
    ) -> None:
        try:
            client.send(*step())
        except StopIteration:
            self._idle.append(client)
        except OSError as error:
            self._send_next(client, requests, partial(requests.throw, error))
        else:
            self._busy[client] = requests

    def _put(self, arrival: DocumentArrival, body: bytes) -> Requests:
        """Put a document, then query for the word that only this document has."""
        path = f"/documents/{quote(arrival.id, safe='')}"
        answer = yield from self._request("put", "PUT", path, body)
        if answer is None:
            return
        acknowledged_ms = self._elapsed_ms(arrival.due_s)
        path = f"/search?q={arrival.word}&limit=1&snippets=0&after={answer['label']}"
        result = yield from self._request("fresh query", "GET", path)
        freshness_ms = self._elapsed_ms(arrival.due_s)
        if result is None:
            return
        if [hit["id"] for hit in result["hits"]] != [arrival.id]:  # type: ignore[attr-defined]
            self._observed.errors["not found"] += 1
        elif arrival.due_s >= self._load.warmup_s:
            self._observed.acknowledged_ms.append(acknowledged_ms)
            self._observed.freshness_ms.append(freshness_ms)

    def _query(self, arrival: QueryArrival, path: str) -> Requests:
        kind = arrival.query.kind
        result = yield from self._request(kind, "GET", path)
        if result is not None and arrival.due_s >= self._load.warmup_s:
            self._observed.queries.setdefault(kind, []).append(self._elapsed_ms(arrival.due_s))

    def _request(
        self, what: str, method: str, path: str, body: bytes = b""
    ) -> Generator[tuple[str, str, bytes], tuple[int, bytes], dict[str, object] | None]:
        """Return the decoded response, or count an error and return None.

        A failed request and any status other than 200 are errors. `what`: the request's name in the
        counts of errors.
        """
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
        """Return the time since a due time, which counts from the start of the load."""
        return 1000 * (perf_counter() - self._start_s - due_s)


def _call_after(pause_s: float, call: Callable[[], None]) -> None:
    sleep(pause_s)
    call()
