"""CPU affinity of a process: with little work, it avoids the core of the process that wakes it.

The scheduler likes to run a process on the core of its waker, where it waits until the waker pauses
even though another core is idle. In virtual machines this is the usual case, because a halted core
looks like one that the hypervisor has taken away. Therefore processes that hand work to each other
use different halves of the cores. For example, a document of the search index passes between them
several times, and becomes searchable about 10 % sooner. ZeroMQ's threads receive messages for a
process and wake it, too: in nodes and masters they use the half that the process does not prefer.

A process that is busy, or has to wait for its core, runs on any core: otherwise two busy processes
could share a core while another core is idle. If another program changes the affinity of a process
while it runs, the process keeps that setting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from time import process_time

CHECK_INTERVAL_S = 1.0
"""Interval between checks of the load, in seconds."""

BUSY_SHARE = 0.3
"""A process is busy if it demands more than this share of a core: its CPU time, plus the time for
which it waited for a core."""

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

    `cores`: those of the service, () for no affinity; `half`: the half that the process prefers, 0
    or 1; `io_half`: the half of ZeroMQ's threads; the other parameters are system calls. Invariant:
    `CHECK_INTERVAL_S` after a process became busy, it may run on any of the cores.
    """

    def __init__(
        self,
        cores: Sequence[int] = (),
        half: int = 0,
        io_half: int = 0,
        pin: Callable[[Collection[int], Collection[int]], None] = _pin_threads,
        current_cores: Callable[[], Collection[int]] = cores_here,
        cpu_demand_s: Callable[[], float] = _cpu_demand_s,
    ) -> None:
        middle = len(cores) // 2
        self._all = tuple(cores)
        halves = self._all[:middle], self._all[middle:]
        self._half, self._io_half = halves[half], halves[io_half]
        self._is_enabled = middle > 0
        self._pin, self._current_cores, self._demand_s = pin, current_cores, cpu_demand_s
        self._current: tuple[int, ...] = ()
        """The cores that this object has set; (): none yet."""
        self._checked_at = self._demand_at_check_s = 0.0
        self.unpin()

    def adjust(self, now: float) -> None:
        """Change the affinity if a check is due. Cheap; `now`: in seconds, monotonic."""
        if not self._is_enabled or now < self._checked_at + CHECK_INTERVAL_S:
            return
        demand_s, is_first = self._demand_s(), not self._checked_at
        is_busy = demand_s - self._demand_at_check_s > BUSY_SHARE * (now - self._checked_at)
        self._checked_at, self._demand_at_check_s = now, demand_s
        if is_first or is_busy:
            self._run_on(self._all, self._all)
        else:
            self._run_on(self._half, self._io_half)

    def unpin(self) -> None:
        """Run on any core until the next `adjust`. A forked process calls only `unpin`."""
        if self._is_enabled:
            self._run_on(self._all, self._all)

    def _run_on(self, cores: tuple[int, ...], io_cores: tuple[int, ...]) -> None:
        if cores == self._current:
            return
        if self._current and self._current_cores() != self._current:
            self._is_enabled = False  # another program has set the affinity
            return
        self._current = cores
        self._pin(cores, io_cores)
