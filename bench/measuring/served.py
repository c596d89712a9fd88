"""Fills a served index, and puts a load on it, over HTTP.

The load is an open loop: each request is begun when it is due, on a connection of its own if others
are still busy, whatever became of those before. Its timers are exact: those of `epoll`, which
asyncio takes by default, have whole milliseconds, and would count as latency of the service.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import selectors
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from time import perf_counter
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
    selector = selectors.SelectSelector()
    with (
        undisturbed(),
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner,
    ):
        runner.run(_Drive(url, load, observed).all(sample))


class _Drive:
    def __init__(self, url: str, load: Load, observed: Observed) -> None:
        self._client = Client(url)
        self._load = load
        self._observed = observed
        self._began = 0.0

    async def all(self, sample: Callable[[], None]) -> None:
        load = self._load
        self._began = perf_counter() + 0.1
        bodies = [json.dumps({"text": each.text}).encode() for each in load.arriving]
        paths = [
            f"/search?q={quote(written(each.query))}&limit={LIMIT}&snippets=0"
            for each in load.asked
        ]
        due: list[tuple[float, Callable[[], Coroutine[None, None, None]]]] = [
            *((each.due_s, _bound(self._put, each, body))
              for each, body in zip(load.arriving, bodies, strict=True)),
            *((each.due_s, _bound(self._ask, each, path))
              for each, path in zip(load.asked, paths, strict=True)),
            (load.warmup_s, _sampling(sample)),
        ]  # fmt: skip
        due.sort(key=lambda each: each[0])
        async with asyncio.TaskGroup() as tasks:
            for due_s, begin in due:
                while (pause := self._began + due_s - perf_counter()) > 0:
                    await asyncio.sleep(pause)
                tasks.create_task(begin())
        sample()
        self._client.close()

    async def _put(self, each: Arriving, body: bytes) -> None:
        self._late(each.due_s)
        answer = await self._answer("put", "PUT", f"/documents/{quote(each.id, safe='')}", body)
        if answer is None:
            return
        acknowledged = self._since(each.due_s)
        path = f"/search?q={each.word}&limit=1&snippets=0&after={answer['label']}"
        found = await self._answer("fresh query", "GET", path)
        fresh = self._since(each.due_s)
        if found is None:
            return
        if [hit["id"] for hit in found["hits"]] != [each.id]:  # type: ignore[attr-defined]
            self._observed.errors["not found"] += 1
        elif each.due_s >= self._load.warmup_s:
            self._observed.acknowledged.append(acknowledged)
            self._observed.freshness.append(fresh)

    async def _ask(self, each: Asked, path: str) -> None:
        self._late(each.due_s)
        answer = await self._answer(each.query.kind, "GET", path)
        if answer is not None and each.due_s >= self._load.warmup_s:
            self._observed.queries.setdefault(each.query.kind, []).append(self._since(each.due_s))

    async def _answer(
        self, what: str, method: str, path: str, body: bytes = b""
    ) -> dict[str, object] | None:
        """The answer; None if there is none, or an error, which is counted."""
        try:
            status, data = await self._client.ask(method, path, body)
        except OSError as error:
            self._observed.errors[f"{what}: {type(error).__name__}"] += 1
            return None
        if status == 200:
            answer = json.loads(data)
            assert isinstance(answer, dict)
            return answer
        self._observed.errors[f"{what}: status {status}"] += 1
        return None

    def _since(self, due_s: float) -> float:
        return 1000 * (perf_counter() - self._began - due_s)

    def _late(self, due_s: float) -> None:
        if due_s >= self._load.warmup_s:
            self._observed.late.append(self._since(due_s))


def _bound(
    does: Callable[..., Coroutine[None, None, None]], *arguments: object
) -> Callable[[], Coroutine[None, None, None]]:
    return lambda: does(*arguments)


def _sampling(sample: Callable[[], None]) -> Callable[[], Coroutine[None, None, None]]:
    async def does() -> None:
        sample()

    return does


def written(query: Query) -> str:
    """A query in the language of Driftline."""
    if query.kind == "phrase":
        return '"' + " ".join(query.words) + '"'
    return (" OR " if query.kind.startswith("union") else " ").join(query.words)
