"""The memory of a process: when it collects cycles of objects, and gives freed memory back.

The engine makes no cycles: reference counting frees all that the data path makes. A user function
may make some: an object that refers back, a kept exception, a parsed tree. So Python's cyclic
collector has to run, but not of itself, in the middle of a record.

A *young* collection looks at the objects that are new since the last one. It takes place while
nothing is to be done, and while there is no such moment, once the new objects are many or have
waited long. What it leaves is old. A *full* collection looks at old objects, too, and takes some
0.2 s for a state of a million keys. It takes place while nothing is to be done, once the objects
of the process are a quarter more than after the last one; twice as many, if the process is busy.

Freed memory goes back to the system once a process is no longer busy. The C library keeps the space
of large objects that were freed, for the next ones: 80 to 260 MB after records of 1 to 10 MB. (To
have it map each of them by itself would give all back at once, and costs three times the CPU time
of the kernel, measured.) Each thread may have a heap of its own, and each heap keeps such space:
where strangers can send large objects there is one heap for all.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from math import inf
from time import process_time

REST_S = 1.0
"""Seconds between two looks at least, while there are moments without work."""

LOAD_S = 10.0
"""Seconds between two collections at most, if there are new objects and no such moment."""

YOUNG_MIN = 1000
"""New objects from which on a collection is worth while."""

YOUNG_MAX = 20_000
"""New objects for which the work is interrupted: a collection of them takes 1 to 7 ms."""

QUIET = 0.02
"""A process is busy if it has used more than this part of its time since the last look."""


class GcScheduler:
    """Takes the place of the automatic cyclic collector, from when it is made on.

    `blocks`: returns the number of blocks of memory that the process holds, about one an object.
    """

    def __init__(self, blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._blocks = blocks
        self._kept = blocks()
        """The number of blocks after the last full collection."""
        self._looked = 0.0
        self._cpu = process_time()
        """Time and CPU time at the last look."""

    def is_due(self, now: float) -> bool:
        """Whether `rest` should be called if nothing is to be done. Cheap."""
        return now - self._looked >= REST_S

    def rest(self, now: float) -> None:
        """Collect what is worth while; nothing is to be done at the moment."""
        cpu = process_time()
        busy = cpu - self._cpu > QUIET * (now - self._looked)
        self._looked, self._cpu = now, cpu
        if self._blocks() > (2 if busy else 1.25) * self._kept:
            gc.collect()
            self._kept = self._blocks()
        elif gc.get_count()[0] >= YOUNG_MIN:
            gc.collect(1)

    def work(self, now: float) -> None:
        """Collect new objects if they are many, or have waited long. Called once a turn."""
        new = gc.get_count()[0]
        if new >= YOUNG_MAX or (new >= YOUNG_MIN and now - self._looked >= LOAD_S):
            self._looked, self._cpu = now, process_time()
            gc.collect(1)


GIVE_BACK_S = 10.0
"""Seconds from one time that memory is given back to the next, at least."""

GIVE_BACK_TIMES = 2
"""How often it is given back after a time of work, at most, as it takes up to 0.1 s for each GB.
The second time there is what was kept for a replay until the next snapshot."""


_M_ARENA_MAX = -8
"""Of glibc's `mallopt`."""


def _trim() -> None:
    """Give back all pages that hold freed memory only. Only glibc has a call for it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_one_heap() -> None:
    """Let threads that begin from now on have no heaps of their own, each of which keeps the space
    of large objects. Only glibc has this setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        mallopt(_M_ARENA_MAX, 1)


class MallocTrimmer:
    """Gives back the freed memory of this process. Its owner calls `rest` when nothing is to do."""

    def __init__(self, give_back: Callable[[], None] = _trim) -> None:
        self._give_back = give_back
        self._looked = -inf
        self._cpu = process_time()
        """CPU time at the last look."""
        self._gave_back = -inf
        """When memory was last given back."""
        self._left = 0
        """How often it will be, unless the process is busy before."""

    def is_due(self, now: float) -> bool:
        """Whether `rest` should be called if nothing is to be done. Cheap."""
        return now - self._looked >= REST_S

    def rest(self, now: float) -> None:
        """Give memory back if that is due; nothing is to be done at the moment."""
        cpu = process_time()
        busy = cpu - self._cpu > QUIET * (now - self._looked)
        self._looked, self._cpu = now, cpu
        if busy:
            self._left = GIVE_BACK_TIMES
        elif self._left and now - self._gave_back >= GIVE_BACK_S:
            self._left -= 1
            self._gave_back = now
            self._give_back()
