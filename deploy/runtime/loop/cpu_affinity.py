"""CPU affinity of a process: with little work, it avoids the core of the process that wakes it.

The scheduler likes to run a process on the core of its waker, where it waits until the waker pauses
even though another core is idle. In virtual machines this is the usual case, because a halted core
looks like one that the hypervisor has taken away. Therefore processes that hand work to each other
use different halves of the cores: a document passes between them several times, and becomes
searchable some 10 % sooner. The same holds for ZeroMQ's threads, which receive for a process and
wake it: those of a node and of a master use the half of their senders.

A process that is busy, or has to wait for its core, runs on any core: otherwise two of them could
share a core while another one is idle. If another program changes the affinity of a process while
it runs, that setting is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from time import process_time

LOOK_S = 1.0
"""Interval between checks of the load, in seconds."""

BUSY = 0.3
"""A process is busy if it uses, or would use if it got one, more than this share of a core."""

IO_THREAD = "ZMQbg/IO"
"""Prefix of the kernel's name of a ZeroMQ thread that sends and receives."""


def cores_here() -> tuple[int, ...]:
    """Return the cores that this process may use; () if the system does not report them."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def _pin_threads(cores: Collection[int], io_cores: Collection[int]) -> None:
    """Run all threads of this process, and their children, on `cores`; ZeroMQ's on `io_cores`."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended, or the system rejects the cores
            is_io = (thread / "comm").read_text().startswith(IO_THREAD)
            os.sched_setaffinity(int(thread.name), io_cores if is_io else cores)


def _cpu_demand_s() -> float:
    """Return the CPU time of this process plus the time that its first thread waited for a core."""
    waited_ns = 0
    with suppress(OSError, ValueError, IndexError), open("/proc/self/schedstat") as file:
        waited_ns = int(file.read().split()[1])
    return process_time() + waited_ns / 1e9


class CpuAffinity:
    """Affinity of this process, which starts on any of the cores.

    `cores`: those of the service, () for no affinity; `half`: 0 or 1; `io_half`: that of ZeroMQ's
    threads; the other parameters are system calls. Invariant: a process with much work runs on any
    of the cores, at most `LOOK_S` later.
    """

    def __init__(
        self,
        cores: Sequence[int] = (),
        half: int = 0,
        io_half: int = 0,
        keep_to: Callable[[Collection[int], Collection[int]], None] = _pin_threads,
        kept_to: Callable[[], Collection[int]] = cores_here,
        wanted_s: Callable[[], float] = _cpu_demand_s,
    ) -> None:
        middle = len(cores) // 2
        self._all = tuple(cores)
        halves = self._all[:middle], self._all[middle:]
        self._half, self._io_half = halves[half], halves[io_half]
        self._is_enabled = middle > 0
        self._keep_to, self._current_cores, self._demand_s = keep_to, kept_to, wanted_s
        self._now: tuple[int, ...] = ()
        """The current cores; (): those of the parent."""
        self._looked = self._wanted = 0.0
        self.unpin()

    def adjust(self, now: float) -> None:
        """Change the affinity if that is due. Cheap; `now`: in seconds, monotonic."""
        if not self._is_enabled or now < self._looked + LOOK_S:
            return
        wanted, is_first = self._demand_s(), not self._looked
        is_busy = wanted - self._wanted > BUSY * (now - self._looked)
        self._looked, self._wanted = now, wanted
        if is_first or is_busy:
            self._run_on(self._all, self._all)
        else:
            self._run_on(self._half, self._io_half)

    def unpin(self) -> None:
        """Run on any core until the next `adjust`: at the start, and in a forked copy, which has no
        `adjust`."""
        if self._is_enabled:
            self._run_on(self._all, self._all)

    def _run_on(self, cores: tuple[int, ...], io_cores: tuple[int, ...]) -> None:
        if cores == self._now:
            return
        if self._now and self._current_cores() != self._now:
            self._is_enabled = False  # another program has set the affinity
            return
        self._now = cores
        self._keep_to(cores, io_cores)
