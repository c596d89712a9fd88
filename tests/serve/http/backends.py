"""In-process service: it interprets a flow record by record and queries real views directly."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from functools import partial

from driftline.engine.flow.flow import Flow
from driftline.engine.reference import interpret
from driftline.engine.wire.bundles import Item, item_time
from driftline.engine.wire.codec import round_trip
from driftline.serve.errors import ApiError, RetentionExceeded
from driftline.serve.gateway.backend import REQUEST_TIMEOUT_S
from driftline.serve.journal import Span
from driftline.serve.views.hosted import Answer, HostedView, Question

EMPTY_SPAN_INTERVAL_S = 0.01
"""Interval between empty spans of a stream without outputs."""


class FlowBackend:
    """`Backend` of a flow with one source, in which each record yields one output.

    Writes have the times 10, 20, 30, ...; T is the time of the last one plus 1.

    `views`: shards by name. `holds_outputs`: outputs wait until `release_outputs`, as in a busy
    flow. `views_lag`: the journal has the outputs, but views wait until `apply`.
    `write_loop_passes`: number of loop passes that a write takes. `write_results`: queue of results
    of the next writes: an error, or None to accept.
    """

    def __init__(
        self,
        flow: Flow,
        views: Mapping[str, Sequence[HostedView]],
        *,
        dead_letters: bool = False,
    ) -> None:
        self.views = views
        self.oldest = 0
        self.stalled_s = 0.0
        self.time = 1
        self.is_ready = True
        self.holds_outputs = False
        self.views_lag = False
        self.write_loop_passes = 1
        self.write_results: deque[ApiError | None] = deque()
        self.waiting_queries = 0
        """Number of queries that wait for their T."""
        self.cancelled_queries = 0
        """Number of cancelled queries."""
        self.concurrent_writes_max = 0
        """Maximum number of concurrent writes so far."""
        self._in_flight = 0
        self._now = 0
        self._records: deque[tuple[int, object]] = deque()
        self._outputs = interpret(flow, [self._read_records()], dead_letters=dead_letters)
        self._items: list[Item] = []
        self._waiting: list[Item] = []
        self._moved = asyncio.Condition()
        for shards in views.values():
            for view in shards:
                view.apply(self.time, ())

    def _read_records(self) -> Iterator[tuple[int, object]]:
        while True:
            yield self._records.popleft()

    def view_time(self, view: str) -> int:
        return min(each.time for each in self.views[view])

    async def write(self, record: object, *, bulk: bool = False) -> int:
        self._in_flight += 1
        self.concurrent_writes_max = max(self.concurrent_writes_max, self._in_flight)
        try:
            for _ in range(self.write_loop_passes):
                await asyncio.sleep(0)
            if self.write_results and (refused := self.write_results.popleft()) is not None:
                raise refused
            self._now += 10
            self._records.append((self._now, round_trip(record)))
            self._waiting.append(next(self._outputs))
            if not self.holds_outputs:
                await self.release_outputs()
            return self._now
        finally:
            self._in_flight -= 1

    async def release_outputs(self) -> None:
        """Release all outputs to the journal."""
        passed, self._waiting = self._waiting, []
        self._items += passed
        self.time = self._now + 1
        if not self.views_lag:
            await self.apply(self.time)
        async with self._moved:
            self._moved.notify_all()

    async def apply(self, time: int) -> None:
        """Apply the outputs below a T to all views."""
        for shards in self.views.values():
            for view in shards:
                view.apply(time, self._between(view.time, time))
        async with self._moved:
            self._moved.notify_all()

    async def wait_for_outputs(
        self, time: int, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Sequence[Item]:
        await self._reached(partial(self._has_passed, time), timeout_s)
        return self._between(time, time + 1)

    async def ask(
        self,
        view: str,
        question: Question,
        *,
        after: int = 0,
        timeout_s: float = REQUEST_TIMEOUT_S,
        client: str = "",
    ) -> Sequence[Answer]:
        at = question.get("at")
        self.waiting_queries += 1
        try:
            time = max(after, at if isinstance(at, int) else 0)
            await self._reached(lambda: self.view_time(view) >= time, timeout_s)
        except asyncio.CancelledError:
            self.cancelled_queries += 1
            raise
        finally:
            self.waiting_queries -= 1
        asked = round_trip(question)
        assert isinstance(asked, dict)
        answers, absent = [], None
        for each in self.views[view]:
            try:
                answer = round_trip(each.ask(asked))
                assert isinstance(answer, dict)
                answers.append(answer)
            except ApiError as error:
                if error.code != "absent":
                    raise
                absent = error
        if absent is not None and not answers:
            raise absent
        return answers

    async def spans(self, since: int) -> AsyncGenerator[Span, None]:
        if since < self.oldest:
            raise RetentionExceeded.of("the journal", self.oldest)
        while True:
            if self.time > since:
                span = Span(since, self.time, self._between(since, self.time))
                since = self.time
                yield span
            try:
                await self._reached(partial(self._has_passed, since), EMPTY_SPAN_INTERVAL_S)
            except ApiError:
                yield Span(since, since, [])

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        return {
            f"{name}-{number}": view.figures()
            for name, shards in self.views.items()
            for number, view in enumerate(shards)
        }

    def forget_before(self, since: int) -> None:
        """Drop data before a time from the journal and all views."""
        self.oldest = since
        for shards in self.views.values():
            for view in shards:
                view.forget_before(since)

    def _between(self, since: int, time: int) -> list[Item]:
        """Return the outputs with times in [since, time)."""
        first, end = (bisect_left(self._items, at, key=item_time) for at in (since, time))
        return self._items[first:end]

    def _has_passed(self, time: int) -> bool:
        return self.time > time

    async def _reached(self, has: Callable[[], bool], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s), self._moved:
                await self._moved.wait_for(has)
        except TimeoutError:
            raise ApiError("unavailable", "it takes too long") from None
