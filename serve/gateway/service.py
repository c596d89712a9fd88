"""The backend of the gateway: submits records to the flow, follows the journal, queries views.

Input: the outcomes of submitted records, and spans of the journal. Output: lists of records for the
front. `ServiceBackend` implements `Backend`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import chain, count, islice, takewhile
from time import monotonic, time_ns

from driftline.deploy.roles.consumer import DeadLetters
from driftline.engine.errors import DriftlineError
from driftline.engine.events import Trouble, event_fields, log
from driftline.engine.wire.bundles import Item, item_time
from driftline.serve.errors import ApiError
from driftline.serve.gateway.backend import WITHIN_S
from driftline.serve.gateway.intake import Outcome
from driftline.serve.gateway.monitors import LatencyWindow, ViewStallDetector
from driftline.serve.gateway.subscriptions import FairScheduler, subscribe
from driftline.serve.hosting.config import JOURNAL, ServiceConfig, name_of
from driftline.serve.hosting.feeds import STREAM_BYTES
from driftline.serve.hosting.host import STATUS
from driftline.serve.hosting.view_client import ViewClient
from driftline.serve.journal import Span
from driftline.serve.views.hosted import Answer, Question

MEASURED = 16
"""Number of outputs per span, its last ones, whose delay is measured."""

CATCHES_UP_S = 20.0
"""Longest wait at a start until the records of earlier sessions are processed. Meanwhile the
service rejects reads, because clients could see T decrease."""

VIEW_POLL_S = 2.0
"""Interval at which the gateway asks the views for their figures."""

BULK_WITHIN_S = 60.0
"""Timeout for storing a record of a bulk; it may wait for records of other bulks."""

RECENT_MAX = 1_000
RECENT_BYTES_MAX = 64 << 20
"""Limits of `RecentOutputs`: number of outputs, and their size."""

WriteFuture = asyncio.Future[int]
"""Future with the label time of a record."""


class ServiceBackend:
    """The backend of a service's HTTP server; constructed and used in the loop of that server.

    `submit`: passes records to the front, each with its future, and whether they are part of a
    bulk; the caller passes their outcomes to `resolve_writes`. `figures`: returns the figures of
    the flow. `resume_time`: T after all records of earlier sessions; 0 without any.
    """

    def __init__(
        self,
        config: ServiceConfig,
        submit: Callable[[list[tuple[WriteFuture, object]], bool], None],
        figures: Callable[[], Mapping[str, float]],
        resume_time: int = 0,
    ) -> None:
        self._time = 0
        self._resume_time = resume_time
        self.started = False
        self._config = config
        self._submit = submit
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self._clients = {
            view.name: [
                ViewClient(name, config.query_socket(name))
                for name in (name_of(view.name, shard) for shard in range(view.shards))
            ]
            for view in config.views
        }
        self._records: dict[bool, list[tuple[WriteFuture, object]]] = {False: [], True: []}
        """Whether part of a bulk -> records to submit in the next pass of the loop."""
        self._recent = RecentOutputs(0)
        self._passing: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of (T, number, future to resolve at that T)."""
        self._numbers = count()
        self._seen: dict[str, dict[str, float]] = {}
        """Name of a view's shard -> its last figures."""
        self._started_us = time_ns() // 1000
        self._outputs = 0
        self._delays = LatencyWindow()
        """Seconds from the label time of a record to the arrival of its output here."""
        self._trouble = Trouble("gateway-not-following")
        self._dead_letters = DeadLetters(f"{config.directory}/journal")
        self._failed = 0
        """Number of dead letters since the start."""
        self._following = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._scheduler = FairScheduler()
        self._stall = ViewStallDetector()
        self._stall.note_write(resume_time - 1, monotonic())

    async def start(self) -> None:
        """Wait until journal and views have caught up with earlier sessions (`CATCHES_UP_S`)."""
        now = max([0, *await self._views_at()])
        self._time, self._recent = now, RecentOutputs(now)
        clients = chain.from_iterable(self._clients.values())
        running = self._follow(), self._log_dead_letters(), *map(self._refresh, clients)
        self._tasks = [asyncio.create_task(each) for each in running]
        await self._following.wait()
        try:
            async with asyncio.timeout(CATCHES_UP_S):
                await self._wait_for(self._resume_time)
        except TimeoutError:
            fields = event_fields("not-caught-up", within_s=CATCHES_UP_S)
            text = "not caught up after %g s: reads may be older than before the restart"
            log.warning(text, CATCHES_UP_S, extra=fields)
        await self._views_at(self._time)
        self.started = True

    def end(self) -> None:
        """End all streams. Precondition: no new clients connect."""
        self._over.set()

    async def close(self) -> None:
        """Stop all tasks, and close the connections to the journal and the views."""
        self._dead_letters.close()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for clients in self._clients.values():
            for client in clients:
                client.close()

    # Records.

    async def write(self, record: object, *, bulk: bool = False) -> int:
        records = self._records[bulk]
        if not records:
            self._loop.call_soon(self._hand_over, bulk)
        waiting: WriteFuture = self._loop.create_future()
        records.append((waiting, record))
        try:
            async with asyncio.timeout(BULK_WITHIN_S if bulk else WITHIN_S):
                time = await waiting
        except TimeoutError:
            text = (
                "it is not stored yet, and may be later: send it again, with the same key, if it "
                "has one; without one it may be done twice"
            )
            raise ApiError("unavailable", text) from None
        self._stall.note_write(time, monotonic())
        return time

    def resolve_writes(self, outcomes: Sequence[tuple[WriteFuture, Outcome]]) -> None:
        """Resolve the futures of records with their outcomes."""
        for waiting, outcome in outcomes:
            if waiting.done():
                continue
            if isinstance(outcome, ApiError):
                waiting.set_exception(outcome)
            else:
                waiting.set_result(outcome)

    def _hand_over(self, bulk: bool) -> None:
        records, self._records[bulk] = self._records[bulk], []
        self._submit(records, bulk)

    # The journal.

    @property
    def time(self) -> int:
        return self._time if self.started else 0

    @property
    def stalled_s(self) -> float:
        return self._stall.seconds(monotonic())

    @property
    def oldest(self) -> int:
        return 0

    async def wait_for_outputs(self, time: int, within_s: float = WITHIN_S) -> Sequence[Item]:
        try:
            async with asyncio.timeout(within_s):
                await self._wait_for(time + 1)
                if (found := self._recent.at(time)) is not None:
                    return found
                async for span in self.spans(time):
                    if span.time > time:
                        return [item for item in span.items if item.label[0] == time]
        except TimeoutError:
            pass
        raise ApiError("unavailable", f"it is stored, but was not processed within {within_s:g} s")

    def spans(self, since: int) -> AsyncGenerator[Span, None]:
        feeds, over = self._config.feeds, self._over
        return subscribe(feeds, since, "subscriber", over, STREAM_BYTES, self._scheduler)

    async def _wait_for(self, time: int) -> None:
        if self._time < time:
            waiting = self._loop.create_future()
            heappush(self._passing, (time, next(self._numbers), waiting))
            await waiting

    async def _follow(self) -> None:
        while True:
            try:
                async for span in subscribe(self._config.feeds, self._time):
                    self._trouble.record_success(monotonic(), "the gateway follows the journal")
                    self._take(span)
            except DriftlineError as error:
                now = monotonic()
                self._trouble.record_failure(now, f"the gateway cannot follow the journal: {error}")
                await asyncio.sleep(1.0)

    def _take(self, span: Span) -> None:
        self._recent.add(span.items)
        self._outputs += len(span.items)
        if span.items:
            now, here = time_ns() // 1000, monotonic()
            for item in span.items[-MEASURED:]:
                if item.label[0] >= self._started_us:  # earlier records predate this process
                    self._delays.add(here, max(0, now - item.label[0]) / 1e6)
        failures = [item for item in span.items if item.sink < 0]
        self._failed += len(failures)
        self._dead_letters.add_failures(monotonic(), failures)
        self._time = span.time
        self._stall.note_progress(span.time, monotonic())
        self._following.set()
        while self._passing and self._passing[0][0] <= span.time:
            _, _, waiting = heappop(self._passing)
            if not waiting.done():
                waiting.set_result(None)

    # Views.

    def view_time(self, view: str) -> int:
        return min(client.time for client in self._clients[view])

    async def ask(
        self,
        view: str,
        question: Question,
        *,
        after: int = 0,
        within_s: float = WITHIN_S,
        asker: str = "",
    ) -> Sequence[Answer]:
        asking = [
            _unless_absent(each.ask(question, after, within_s, asker))
            for each in self._clients[view]
        ]
        found = [await asking[0]] if len(asking) == 1 else await _all(asking)
        answers = [each for each in found if not isinstance(each, ApiError)]
        if not answers and isinstance(found[0], ApiError):
            raise found[0]
        return answers

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        now = monotonic()
        gateway = {"outputs": self._outputs, **self._delays.figures(now)}
        journal = {"time": self._time, "dead_letters": self._failed}
        parts = {"flow": self._figures(), "gateway": gateway, JOURNAL: journal}
        return {**parts, **self._seen}

    async def _views_at(self, after: int = 0) -> list[int]:
        """Return the T of each shard of each view, once it is at least `after`."""
        times: list[int] = []
        for clients in self._clients.values():
            for client in clients:
                answer = await self._status(client, after)
                times.append(int(answer["time"]))
        return times

    async def _status(self, client: ViewClient, after: int = 0) -> dict[str, float]:
        while True:
            with suppress(ApiError):
                answer = await client.ask({"what": STATUS}, after, WITHIN_S)
                return {key: x for key, x in answer.items() if isinstance(x, int | float)}
            await asyncio.sleep(0.1)

    async def _refresh(self, client: ViewClient) -> None:
        while True:
            self._seen[client.name] = await self._status(client)
            await asyncio.sleep(VIEW_POLL_S)

    async def _log_dead_letters(self) -> None:
        while True:
            self._dead_letters.log_if_due(monotonic())
            await asyncio.sleep(VIEW_POLL_S)


class RecentOutputs:
    """Buffer of the last outputs of a flow, for clients that read the outputs of a new record.

    `RECENT_MAX` and `RECENT_BYTES_MAX` bound the buffer. `since`: the time of the first output.

    >>> recent = RecentOutputs(5)
    >>> recent.add([Item((6, 0), 0, "a"), Item((6, 1), 0, "b"), Item((8, 0), 0, "c")])
    >>> [item.value for item in recent.at(6) or ()], recent.at(7), recent.at(4)
    (['a', 'b'], [], None)
    """

    def __init__(self, since: int) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._since = since
        """The buffer has all outputs from this time on."""

    def add(self, items: Sequence[Item]) -> None:
        """Append the next outputs, in label order."""
        for item in items:
            self._items.append(item)
            self._bytes += _size(item.value)
        while len(self._items) > RECENT_MAX or self._bytes > RECENT_BYTES_MAX:
            item = self._items.popleft()
            self._bytes -= _size(item.value)
            self._since = item.label[0] + 1

    def at(self, time: int) -> Sequence[Item] | None:
        """Return the outputs of a time below T; None if the buffer no longer has them."""
        if time < self._since:
            return None
        first = bisect_left(self._items, time, key=item_time)
        rest = islice(self._items, first, None)
        return list(takewhile(lambda item: item.label[0] == time, rest))


def _size(value: object) -> int:
    """Return the approximate size of a payload: the total length of its strings and bytes."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return sum(len(part) for part in parts if isinstance(part, str | bytes))


async def _all(
    asking: Sequence[Coroutine[None, None, Answer | ApiError]],
) -> list[Answer | ApiError]:
    """Gather all answers; if one raises, cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in asking]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()


async def _unless_absent(answer: Awaitable[Answer]) -> Answer | ApiError:
    """Return the answer, or the ApiError "absent"; raise any other ApiError."""
    try:
        return await answer
    except ApiError as error:
        if error.code == "absent":
            return error
        raise
