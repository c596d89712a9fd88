"""Loops that drive a measured system: the same code for Driftline and for the floor.

The floor is the case without an engine (`systems.cases`).

`open_loop` measures latency: it sends documents by a schedule, however late the system is.
`closed_loop` measures throughput: it limits the number of documents in flight, and the due time of
a document is the time when it is sent.
"""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from random import Random
from statistics import median
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import Protocol

import psutil

from driftline.bench.measuring.meter import Arrival, RunMeter
from driftline.deploy.runtime.loop.runtime import SWITCH_S


class System(Protocol):
    """A system under measurement: the interface for its producer and its consumer."""

    def send(self, number: int) -> None:
        """Pass document `number` to the system without waiting."""

    def receive(self) -> Sequence[Arrival]:
        """Read and decode a bounded number of outputs, without blocking."""

    def wait(self, timeout_ms: int) -> None:
        """Sleep until an output arrives, at most `timeout_ms`."""


def open_loop(
    system: System,
    meter: RunMeter,
    schedule_s: Sequence[float],
    *,
    patience_s: float = 10.0,
    settle_s: float = 0.1,
) -> dict[str, float]:
    """Send document i `schedule_s[i]` seconds after the start, however late the system is.

    After the last document, wait until all outputs have arrived, or none arrives for `patience_s`;
    then read for another `settle_s`, for late duplicates. Return the latency figures.
    """
    with without_gc_pauses():
        start = perf_counter()
        for number, offset in enumerate(schedule_s):
            due = start + offset
            _record_arrivals(system, meter)
            # Timeouts are whole milliseconds; for the remainder, the loop polls without sleeping.
            while (remaining := due - perf_counter()) > 0:
                if remaining >= 0.001:
                    system.wait(int(remaining * 1000))
                _record_arrivals(system, meter)
                os.sched_yield()  # a busy loop must not starve the measured processes
            meter.record_sent(number, perf_counter(), due)
            system.send(number)
        _drain(system, meter, patience_s)
        _settle(system, meter, settle_s)
    return meter.latency_figures()


def closed_loop(
    system: System,
    meter: RunMeter,
    window: int,
    *,
    patience_s: float = 10.0,
    settle_s: float = 0.1,
) -> dict[str, float]:
    """Send all documents as fast as possible, with at most `window` of them in flight.

    Once all are complete, or no output arrives for `patience_s`, read for another `settle_s`, for
    late duplicates. Return the throughput figures.
    """
    documents = len(meter.expected)
    with without_gc_pauses():
        start, cpu_s = perf_counter(), cpu_seconds()
        last_arrival = start
        while meter.complete < documents and perf_counter() < last_arrival + patience_s:
            while meter.sent < documents and meter.in_flight < window:
                now = perf_counter()
                meter.record_sent(meter.sent, now, due=now)
                system.send(meter.sent - 1)
            if _record_arrivals(system, meter):
                last_arrival = perf_counter()
            else:
                system.wait(100)
        cores = (cpu_seconds() - cpu_s) / (perf_counter() - start)
        _settle(system, meter, settle_s)
    return meter.throughput_figures(cores)


def _record_arrivals(system: System, meter: RunMeter) -> bool:
    """Count the outputs that have arrived. Return whether any arrived."""
    arrivals = system.receive()
    for number, keys, at in arrivals:
        meter.record_arrival(number, keys, at)
    return bool(arrivals)


def _drain(system: System, meter: RunMeter, patience_s: float) -> None:
    """Read until all documents are complete, or no output arrives for `patience_s`."""
    last_arrival = perf_counter()
    while meter.in_flight and perf_counter() < last_arrival + patience_s:
        system.wait(100)
        if _record_arrivals(system, meter):
            last_arrival = perf_counter()


def _settle(system: System, meter: RunMeter, settle_s: float) -> None:
    """Read for another `settle_s`; outputs that arrive in this time are duplicates, or late."""
    end = perf_counter() + settle_s
    while perf_counter() < end:
        system.wait(10)
        _record_arrivals(system, meter)


@contextmanager
def without_gc_pauses() -> Iterator[None]:
    """Keep pauses of this process out of the measured latency.

    Disable cyclic garbage collection, and use the GIL switch interval of Driftline's processes
    (`SWITCH_S`). Then a thread of this process that has written to the disk waits for the GIL no
    longer than one of theirs.
    """
    was_enabled, interval_s = gc.isenabled(), sys.getswitchinterval()
    gc.collect()
    gc.disable()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        if was_enabled:
            gc.enable()


def poisson_schedule(n: int, rate: float, seed: int) -> list[float]:
    """Return the due times in s of `n` arrivals of a Poisson process, on average `rate` per s."""
    random = Random(seed)
    return list(accumulate(random.expovariate(rate) for _ in range(n)))


def steady_schedule(n: int, rate: float) -> list[float]:
    """Return the due times in seconds of `n` evenly spaced arrivals, `rate` per second."""
    return [number / rate for number in range(n)]


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, including ended ones."""
    this_process = psutil.Process()
    total = 0.0
    for process in [this_process, *this_process.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def measure_sync_ms() -> float:
    """Return the median time in ms to append 4 KiB to a temporary file and sync it."""

    def write_ms(file: int) -> float:
        start = perf_counter()
        os.write(file, b"x" * 4096)
        os.fdatasync(file)
        return 1000 * (perf_counter() - start)

    with NamedTemporaryFile(prefix="driftline-bench-") as file:
        return median(write_ms(file.fileno()) for _ in range(50))
