"""A runtime in an asyncio loop: one thread serves clients of the loop, and drives the parties.

So nothing that a client hands to a party, or a party to a client, has to wake another thread. The
loop waits for the files of the runtime in its place, and lets it take a turn when one can be read,
when a tick is due, or when it is asked to (`soon`). Turns are bounded, and between two of them the
loop does what else is due. Invariant: after a turn, either a further one is due, or all files that
wake the runtime are looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from driftline.deploy.runtime.loop.runtime import Runtime

Result = TypeVar("Result")

WAIT_S = 0.05
"""The longest time between two turns."""


class Looped(Generic[Result]):
    """Drives a runtime in the running loop, from when it is made until `look` gives a result.

    `look`: is called after each turn. What it raises, or the runtime, ends the turns, too.
    Precondition: nobody else calls `Runtime.step` meanwhile.
    """

    def __init__(self, runtime: Runtime, look: Callable[[], Result | None]) -> None:
        self._runtime = runtime
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._files: set[int] = set()
        self._next: asyncio.Handle | None = None
        """The next turn, if no file can be read before."""
        self._result: asyncio.Future[Result] = self._loop.create_future()
        self.soon()

    async def result(self) -> Result:
        """The result, once there is one. Raises what has ended the turns."""
        try:
            return await self._result
        finally:
            self._result.cancel()
            self._rest()

    def soon(self) -> None:
        """Let the runtime take a turn soon: a party was handed something."""
        if not self._result.done():
            self._schedule(self._loop.call_soon(self._turn))

    def _turn(self) -> None:
        runtime = self._runtime
        if self._result.done():
            return
        try:
            more = runtime.step(wait_s=0.0)
            result = self._look()
        except BaseException as error:
            self._result.set_exception(error)
            return
        if result is not None:
            self._result.set_result(result)
        elif more or (files := runtime.quiet_files()) is None:
            self.soon()
        else:
            self._watch(files)
            pause_s = max(0.0, min(runtime.tick_at - monotonic(), WAIT_S))
            self._schedule(self._loop.call_later(pause_s, self._turn))

    def _schedule(self, turn: asyncio.Handle) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = turn

    def _watch(self, files: set[int]) -> None:
        """Have these files, and no others, bring about a turn."""
        for file in self._files - files:
            self._loop.remove_reader(file)
        for file in files - self._files:
            self._loop.add_reader(file, self._turn)
        self._files = files

    def _rest(self) -> None:
        """Take no more turns."""
        self._watch(set())
        if self._next is not None:
            self._next.cancel()
