"""Memory of a process: when to collect reference cycles, and when to return freed memory.

The engine creates no cycles: reference counting frees everything that the data path allocates. A
user function may create cycles: an object with a back reference, a kept exception, a parsed tree.
So Python's cyclic collector has to run, but not at an arbitrary point in the middle of a record.

A *young* collection covers the objects created since the last one. It runs when the loop is idle;
if the loop is never idle, it runs once there are many new objects, or some have waited long. The
objects that survive it are *old*. A *full* collection covers old objects, too, and takes about
0.2 s for a state of a million keys. It runs when the loop is idle and the process has a quarter
more objects than after the last one; twice as many, if the process is busy.

Freed memory returns to the system once a process is no longer busy. The C library keeps the space
of large freed objects for the next ones: 80 to 260 MB after records of 1 to 10 MB. (A separate
mapping for each large object would return all of it at once, but tripled the CPU time in the kernel
in a measurement.) Each thread may have a heap of its own, and each heap keeps such space: a process
that accepts records from producers uses one heap for all threads.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from math import inf
from time import process_time

CHECK_INTERVAL_S = 1.0
"""Minimum interval in seconds between two checks of an idle loop."""

BUSY_COLLECT_S = 10.0
"""If the loop is never idle, collect new objects after this many seconds."""

YOUNG_MIN = 1000
"""Number of new objects that makes a collection worthwhile."""

YOUNG_MAX = 20_000
"""With this many new objects, collect even if the loop is busy. That takes 1 to 7 ms."""

BUSY_SHARE = 0.02
"""A process is busy if its CPU time exceeds this share of the time since the last check."""


class _IdleTask:
    """Work for an idle loop that depends on whether the process was busy since the last check."""

    def __init__(self) -> None:
        self._checked_at = 0.0
        """Time of the last check (seconds, monotonic)."""
        self._cpu_s = process_time()
        """CPU time of this process at the last check, in seconds."""

    def is_due(self, now: float) -> bool:
        """Return whether the next check is due. Cheap."""
        return now - self._checked_at >= CHECK_INTERVAL_S

    def _check(self, now: float) -> bool:
        """Record a check. Return whether the process was busy since the previous one."""
        cpu_s = process_time()
        was_busy = cpu_s - self._cpu_s > BUSY_SHARE * (now - self._checked_at)
        self._checked_at, self._cpu_s = now, cpu_s
        return was_busy


class GcScheduler(_IdleTask):
    """Replacement of the automatic cyclic collector, active from its construction on.

    `blocks`: returns the number of memory blocks that the process holds, about one per object.
    """

    def __init__(self, blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        super().__init__()
        gc.collect()
        gc.freeze()
        gc.disable()
        self._blocks = blocks
        self._blocks_after = blocks()
        """Number of blocks after the last full collection."""

    def collect_when_idle(self, now: float) -> None:
        """Run a full or a young collection if it is worthwhile. Precondition: the loop is idle."""
        if self._blocks() > (2 if self._check(now) else 1.25) * self._blocks_after:
            gc.collect()
            self._blocks_after = self._blocks()
        elif gc.get_count()[0] >= YOUNG_MIN:
            gc.collect(1)

    def collect_if_urgent(self, now: float) -> None:
        """Collect new objects if they are many or have waited long. Called once per turn."""
        new = gc.get_count()[0]
        if new >= YOUNG_MAX or (new >= YOUNG_MIN and now - self._checked_at >= BUSY_COLLECT_S):
            self._check(now)
            gc.collect(1)


TRIM_INTERVAL_S = 10.0
"""Shortest interval between two returns of memory, in seconds."""

TRIMS_MAX = 2
"""How many times to return memory after a busy period. Each time takes up to 0.1 s per GB. The
second time returns the memory of data that was kept for a replay until the next snapshot."""


_M_ARENA_MAX = -8
"""Parameter of glibc's `mallopt`."""


def _trim() -> None:
    """Return all pages that contain only freed memory to the system. Only glibc supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_one_heap() -> None:
    """Make threads that start from now on share one heap, because each heap keeps the space of
    large objects. Only glibc has this setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        mallopt(_M_ARENA_MAX, 1)


class MallocTrimmer(_IdleTask):
    """Task that returns freed memory of this process to the system while its loop is idle."""

    def __init__(self, trim: Callable[[], None] = _trim) -> None:
        super().__init__()
        self._trim_heaps = trim
        self._trimmed_at = -inf
        """When memory was last returned (seconds, monotonic)."""
        self._trims_left = 0
        """How many times to return memory until the next busy period."""

    def trim_when_idle(self, now: float) -> None:
        """Return memory to the system if that is due. Precondition: the loop is idle."""
        if self._check(now):
            self._trims_left = TRIMS_MAX
        elif self._trims_left and now - self._trimmed_at >= TRIM_INTERVAL_S:
            self._trims_left -= 1
            self._trimmed_at = now
            self._trim_heaps()
