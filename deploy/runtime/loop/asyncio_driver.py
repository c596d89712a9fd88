"""A runtime in an asyncio loop: one thread serves the loop's clients and drives the roles.

Passing data between a client and a role therefore wakes no other thread. The loop watches the file
descriptors of the runtime, and runs a turn when one is readable, when a tick is due, or on request.
Turns are bounded, and the loop does its other work between them. Invariant: after a turn, either a
further turn is scheduled, or the loop watches all file descriptors that wake the runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from driftline.deploy.runtime.loop.runtime import Runtime

Result = TypeVar("Result")

TURN_INTERVAL_S_MAX = 0.05
"""Longest time between two turns, in seconds."""


class AsyncioDriver(Generic[Result]):
    """Driver of a runtime in the running asyncio loop, from its construction until `find_result`
    returns a result.

    `find_result`: called after each turn. An exception of this function or of the runtime also ends
    the turns. Precondition: no other code calls `Runtime.step` meanwhile.
    """

    def __init__(self, runtime: Runtime, find_result: Callable[[], Result | None]) -> None:
        self._runtime = runtime
        self._find_result = find_result
        self._loop = asyncio.get_running_loop()
        self._fds: set[int] = set()
        self._next: asyncio.Handle | None = None
        """The next turn, unless a descriptor becomes readable earlier."""
        self._result: asyncio.Future[Result] = self._loop.create_future()
        self.schedule_turn()

    async def result(self) -> Result:
        """Wait for the result. Raises the exception that ended the turns."""
        try:
            return await self._result
        finally:
            self._result.cancel()
            self._stop()

    def schedule_turn(self) -> None:
        """Schedule a turn as soon as possible, because a role has received input."""
        if not self._result.done():
            self._schedule(self._loop.call_soon(self._turn))

    def _turn(self) -> None:
        runtime = self._runtime
        if self._result.done():
            return
        try:
            more = runtime.step(wait_s=0.0)
            result = self._find_result()
        except BaseException as error:
            self._result.set_exception(error)
            return
        if result is not None:
            self._result.set_result(result)
        elif more or (fds := runtime.fds_to_watch()) is None:
            self.schedule_turn()
        else:
            self._watch(fds)
            pause_s = max(0.0, min(runtime.tick_at - monotonic(), TURN_INTERVAL_S_MAX))
            self._schedule(self._loop.call_later(pause_s, self._turn))

    def _schedule(self, turn: asyncio.Handle) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = turn

    def _watch(self, fds: set[int]) -> None:
        """Watch exactly these file descriptors; a readable one triggers a turn."""
        for fd in self._fds - fds:
            self._loop.remove_reader(fd)
        for fd in fds - self._fds:
            self._loop.add_reader(fd, self._turn)
        self._fds = fds

    def _stop(self) -> None:
        """Run no more turns."""
        self._watch(set())
        if self._next is not None:
            self._next.cancel()
