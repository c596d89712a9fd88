"""The backend of the gateway: submits records to the flow, follows the journal, queries views.

Input: the outcomes of submitted records, spans of the journal, and answers of views. Output: lists
of records for the intake, and questions to views. `ServiceBackend` implements `Backend`.
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
from driftline.engine.events import FailureLog, event_fields, log
from driftline.engine.wire.bundles import Item, item_time
from driftline.serve.errors import ApiError
from driftline.serve.gateway.backend import REQUEST_TIMEOUT_S
from driftline.serve.gateway.intake import Outcome
from driftline.serve.gateway.monitors import LatencyWindow, StallDetector
from driftline.serve.gateway.subscriptions import FairScheduler, subscribe
from driftline.serve.hosting.config import JOURNAL, ServiceConfig, name_of
from driftline.serve.hosting.feeds import STREAM_BYTES
from driftline.serve.hosting.host import STATUS
from driftline.serve.hosting.view_client import ViewClient
from driftline.serve.journal import Span
from driftline.serve.views.hosted import Answer, Question

DELAY_SAMPLES = 16
"""Maximum number of outputs per span whose delay is measured: the last ones of the span."""

CATCH_UP_TIMEOUT_S = 20.0
"""Seconds for which a start waits at most until the records of earlier sessions are processed.
Meanwhile the service rejects reads, because clients could see T decrease."""

VIEW_POLL_S = 2.0
"""Interval in seconds at which the gateway asks the views for their figures."""

BULK_TIMEOUT_S = 60.0
"""Timeout in seconds for storing a record of a bulk, as it may wait for records of other bulks."""

RECENT_MAX = 1_000
RECENT_BYTES_MAX = 64 << 20
"""Limits of `RecentOutputs`: number of outputs, and their size."""

WriteFuture = asyncio.Future[int]
"""Future with the label time of a record."""


class ServiceBackend:
    """The backend of a service's HTTP server; constructed and used in the loop of that server.

    `submit`: passes records to the intake, each with its future; its second argument is whether
    they are part of a bulk. The caller passes their outcomes to `resolve_writes`. `figures`:
    returns the figures of the flow. `resume_time`: the smallest T above the label times of all
    records of earlier sessions; 0 if there are none.
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
        self.is_ready = False
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
        self._unsubmitted: dict[bool, list[tuple[WriteFuture, object]]] = {False: [], True: []}
        """Whether part of a bulk -> records to submit in the next pass of the loop."""
        self._recent = RecentOutputs(0)
        self._time_waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of (T, unique number, future to resolve once T is reached)."""
        self._numbers = count()
        self._view_figures: dict[str, dict[str, float]] = {}
        """Name of a view's shard -> its last figures."""
        self._started_us = time_ns() // 1000
        self._output_count = 0
        self._delays = LatencyWindow()
        """Seconds from the label time of a record to the arrival of its output here."""
        self._journal_failures = FailureLog("gateway-not-following")
        self._dead_letters = DeadLetters(f"{config.directory}/journal")
        self._dead_letter_count = 0
        """Number of dead letters since the start."""
        self._is_following = asyncio.Event()
        """Set once the first span has arrived."""
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ending = asyncio.Event()
        """Set when all streams have to end."""
        self._scheduler = FairScheduler()
        self._stall = StallDetector()
        self._stall.note_write(resume_time - 1, monotonic())

    async def start(self) -> None:
        """Follow the journal; return once reads may be served.

        Waits until all views answer, then at most `CATCH_UP_TIMEOUT_S` until the flow has processed
        the records of earlier sessions, and finally until the views have reached T.
        """
        time = max([0, *await self._view_times()])
        self._time, self._recent = time, RecentOutputs(time)
        clients = chain.from_iterable(self._clients.values())
        loops = self._follow(), self._log_dead_letters(), *map(self._poll_figures, clients)
        self._tasks = [asyncio.create_task(each) for each in loops]
        await self._is_following.wait()
        try:
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                await self._wait_for(self._resume_time)
        except TimeoutError:
            fields = event_fields("not-caught-up", timeout_s=CATCH_UP_TIMEOUT_S)
            text = (
                "records of earlier sessions are still not processed after %g s: reads may return "
                "an older state than before the restart"
            )
            log.warning(text, CATCH_UP_TIMEOUT_S, extra=fields)
        await self._view_times(self._time)
        self.is_ready = True

    def end(self) -> None:
        """End all streams. Precondition: no new clients connect."""
        self._is_ending.set()

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
        records = self._unsubmitted[bulk]
        if not records:
            self._loop.call_soon(self._submit_records, bulk)
        future: WriteFuture = self._loop.create_future()
        records.append((future, record))
        try:
            async with asyncio.timeout(BULK_TIMEOUT_S if bulk else REQUEST_TIMEOUT_S):
                time = await future
        except TimeoutError:
            text = (
                "the record is not stored yet, and may be stored later: send it again with the "
                "same key; a record without a key may then be applied twice"
            )
            raise ApiError("unavailable", text) from None
        self._stall.note_write(time, monotonic())
        return time

    def resolve_writes(self, outcomes: Sequence[tuple[WriteFuture, Outcome]]) -> None:
        """Resolve the futures of records with their outcomes."""
        for future, outcome in outcomes:
            if future.done():
                continue
            if isinstance(outcome, ApiError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _submit_records(self, bulk: bool) -> None:
        records, self._unsubmitted[bulk] = self._unsubmitted[bulk], []
        self._submit(records, bulk)

    # The journal.

    @property
    def time(self) -> int:
        return self._time if self.is_ready else 0

    @property
    def stalled_s(self) -> float:
        return self._stall.stalled_s(monotonic())

    @property
    def oldest(self) -> int:
        return 0

    async def wait_for_outputs(
        self, time: int, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Sequence[Item]:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_for(time + 1)
                if (outputs := self._recent.at(time)) is not None:
                    return outputs
                async for span in self.spans(time):
                    if span.time > time:
                        return [item for item in span.items if item.label[0] == time]
        except TimeoutError:
            pass
        text = f"the record is stored, but was not processed within {timeout_s:g} s"
        raise ApiError("unavailable", text)

    def spans(self, since: int) -> AsyncGenerator[Span, None]:
        path, closing = self._config.feeds_socket, self._is_ending
        return subscribe(path, since, "subscriber", closing, STREAM_BYTES, self._scheduler)

    async def _wait_for(self, time: int) -> None:
        """Wait until T has reached this time."""
        if self._time < time:
            future = self._loop.create_future()
            heappush(self._time_waiters, (time, next(self._numbers), future))
            await future

    async def _follow(self) -> None:
        while True:
            try:
                async for span in subscribe(self._config.feeds_socket, self._time):
                    text = "the gateway follows the journal again"
                    self._journal_failures.record_success(monotonic(), text)
                    self._take(span)
            except DriftlineError as error:
                text = f"the gateway cannot follow the journal: {error}; retrying"
                self._journal_failures.record_failure(monotonic(), text)
                await asyncio.sleep(1.0)

    def _take(self, span: Span) -> None:
        self._recent.add(span.items)
        self._output_count += len(span.items)
        if span.items:
            now_us, now = time_ns() // 1000, monotonic()
            for item in span.items[-DELAY_SAMPLES:]:
                if item.label[0] >= self._started_us:  # earlier records predate this process
                    self._delays.add(now, max(0, now_us - item.label[0]) / 1e6)
        failures = [item for item in span.items if item.sink < 0]
        self._dead_letter_count += len(failures)
        self._dead_letters.add_failures(monotonic(), failures)
        self._time = span.time
        self._stall.note_progress(span.time, monotonic())
        self._is_following.set()
        while self._time_waiters and self._time_waiters[0][0] <= span.time:
            _, _, future = heappop(self._time_waiters)
            if not future.done():
                future.set_result(None)

    # Views.

    def view_time(self, view: str) -> int:
        return min(client.time for client in self._clients[view])

    async def ask(
        self,
        view: str,
        question: Question,
        *,
        after: int = 0,
        timeout_s: float = REQUEST_TIMEOUT_S,
        client: str = "",
    ) -> Sequence[Answer]:
        pending = [
            _unless_absent(shard.ask(question, after, timeout_s, client))
            for shard in self._clients[view]
        ]
        results = [await pending[0]] if len(pending) == 1 else await _gather(pending)
        answers = [result for result in results if not isinstance(result, ApiError)]
        if not answers and isinstance(results[0], ApiError):
            raise results[0]
        return answers

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        now = monotonic()
        gateway = {"outputs": self._output_count, **self._delays.figures(now)}
        journal = {"time": self._time, "dead_letters": self._dead_letter_count}
        parts = {"flow": self._figures(), "gateway": gateway, JOURNAL: journal}
        return {**parts, **self._view_figures}

    async def _view_times(self, after: int = 0) -> list[int]:
        """Return the T of each shard of each view, once it is at least `after`."""
        times: list[int] = []
        for clients in self._clients.values():
            for client in clients:
                answer = await self._status(client, after)
                times.append(int(answer["time"]))
        return times

    async def _status(self, client: ViewClient, after: int = 0) -> dict[str, float]:
        """Return the figures of a shard once its T is at least `after`; retry until it answers."""
        while True:
            with suppress(ApiError):
                answer = await client.ask({"what": STATUS}, after, REQUEST_TIMEOUT_S)
                return {name: x for name, x in answer.items() if isinstance(x, int | float)}
            await asyncio.sleep(0.1)

    async def _poll_figures(self, client: ViewClient) -> None:
        while True:
            self._view_figures[client.name] = await self._status(client)
            await asyncio.sleep(VIEW_POLL_S)

    async def _log_dead_letters(self) -> None:
        while True:
            self._dead_letters.log_if_due(monotonic())
            await asyncio.sleep(VIEW_POLL_S)


class RecentOutputs:
    """Buffer of the last outputs of a flow, for clients that wait for the outputs of a new record.

    `RECENT_MAX` and `RECENT_BYTES_MAX` bound the buffer. `since`: the smallest time of an output
    that may be added.

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
        begin = bisect_left(self._items, time, key=item_time)
        rest = islice(self._items, begin, None)
        return list(takewhile(lambda item: item.label[0] == time, rest))


def _size(value: object) -> int:
    """Return the approximate size of a payload: the total length of its strings and bytes."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return sum(len(part) for part in parts if isinstance(part, str | bytes))


async def _gather(
    pending: Sequence[Coroutine[None, None, Answer | ApiError]],
) -> list[Answer | ApiError]:
    """Wait for the answers to all questions; if one question raises, cancel the others."""
    tasks = [asyncio.ensure_future(question) for question in pending]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _unless_absent(answer: Awaitable[Answer]) -> Answer | ApiError:
    """Return the answer, or the ApiError "absent"; raise any other ApiError."""
    try:
        return await answer
    except ApiError as error:
        if error.code == "absent":
            return error
        raise
