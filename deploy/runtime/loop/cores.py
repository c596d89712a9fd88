"""The cores of a process: with little to do, it keeps away from the core of whoever wakes it.

A system likes to run a process on the core of the one that has woken it. There it waits until that
one pauses, though another core is idle: in virtual machines most of the time, as the system takes a
core that is halted for one that its host has taken away. So processes that hand on to each other
are on different halves of the cores: a document goes to and fro between them, and is found some
10 % sooner. It is the same with the threads of ZeroMQ that receive for a process, and wake it:
those of a node and of a master are on the half of those who send to them.

A process that has much to do, or has to wait for its core, runs wherever there is room: else two of
them could share a core, while another one is idle. What somebody else says of the cores of a
process, while it runs, counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from time import process_time

LOOK_S = 1.0
"""Seconds from one look at a process to the next."""

BUSY = 0.3
"""A process has much to do if it uses more than this part of a core, or would if it got one."""

IO_THREAD = "ZMQbg/IO"
"""How the system's name of a thread of ZeroMQ that sends and receives begins."""


def cores_here() -> tuple[int, ...]:
    """The cores that this process may use; none if the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def _keep_to(cores: Collection[int], io_cores: Collection[int]) -> None:
    """Run all threads of this process on these cores, and what they begin; ZeroMQ's on others."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended, or the system wants it otherwise
            is_io = (thread / "comm").read_text().startswith(IO_THREAD)
            os.sched_setaffinity(int(thread.name), io_cores if is_io else cores)


def _wanted_s() -> float:
    """For how long this process has used a core, and its first thread has waited for one."""
    waited_ns = 0
    with suppress(OSError, ValueError, IndexError), open("/proc/self/schedstat") as file:
        waited_ns = int(file.read().split()[1])
    return process_time() + waited_ns / 1e9


class CpuAffinity:
    """The cores of this process, which begins on any of them.

    `cores`: those of the service, () if its processes are not told apart; `half`: 0 or 1;
    `io_half`: that of ZeroMQ's threads; the rest is what the system does. Invariant: a process
    with much to do runs on any of them, at most `LOOK_S` later.
    """

    def __init__(
        self,
        cores: Sequence[int] = (),
        half: int = 0,
        io_half: int = 0,
        keep_to: Callable[[Collection[int], Collection[int]], None] = _keep_to,
        kept_to: Callable[[], Collection[int]] = cores_here,
        wanted_s: Callable[[], float] = _wanted_s,
    ) -> None:
        middle = len(cores) // 2
        self._all = tuple(cores)
        halves = self._all[:middle], self._all[middle:]
        self._half, self._io_half = halves[half], halves[io_half]
        self._is_told_apart = middle > 0
        self._keep_to, self._kept_to, self._wanted_s = keep_to, kept_to, wanted_s
        self._now: tuple[int, ...] = ()
        """Those that it keeps to; (): those of its parent."""
        self._looked = self._wanted = 0.0
        self.leave()

    def look(self, now: float) -> None:
        """Move to other cores if that is due. Cheap; `now`: in seconds, monotonic."""
        if not self._is_told_apart or now < self._looked + LOOK_S:
            return
        wanted, is_first = self._wanted_s(), not self._looked
        is_busy = wanted - self._wanted > BUSY * (now - self._looked)
        self._looked, self._wanted = now, wanted
        if is_first or is_busy:
            self._run_on(self._all, self._all)
        else:
            self._run_on(self._half, self._io_half)

    def leave(self) -> None:
        """Run on any of them until the next look: at the beginning, and in a copy of the process,
        which does not look any more."""
        if self._is_told_apart:
            self._run_on(self._all, self._all)

    def _run_on(self, cores: tuple[int, ...], io_cores: tuple[int, ...]) -> None:
        if cores == self._now:
            return
        if self._now and self._kept_to() != self._now:
            self._is_told_apart = False  # somebody else has said where it is to run
            return
        self._now = cores
        self._keep_to(cores, io_cores)
