"""The meter: when a document was handed over, when the last of its records arrived.

One `Meter` per run, and two loops that drive any `System` under it: `open_loop` (a fixed schedule,
for latency) and `closed_loop` (a window, for throughput). The floor and Driftline are measured by
exactly this code. The meter knows nothing of words: a document is a number with a count of
expected records, a record is a key that occurs once per document.

    >>> meter = Meter(expected=[2])
    >>> meter.handed_over(0, now=1.0, due=1.0)
    >>> meter.arrived(0, ["a"], now=1.001)
    >>> meter.arrived(0, ["a", "b"], now=1.002)
    >>> [round(ms, 6) for ms in meter.latencies_ms()], meter.lost, meter.duplicated
    ([2.0], 0, 1)

Cost: one set update for each message of records; a document that is complete holds no set.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from os import sched_yield
from random import Random
from time import perf_counter
from typing import NamedTuple, Protocol

import psutil

Arrival = tuple[int, Sequence[object], float]
"""Number of a document, the keys (words) of some of its records, and when they had been decoded."""


class System(Protocol):
    """What is measured, as its producer and its consumer see it."""

    def send(self, number: int) -> None:
        """Hand over document `number`. Never waits for the system to be ready for it."""

    def receive(self) -> Sequence[Arrival]:
        """Read and decode what has arrived: never blocks, and never takes more than its bound."""

    def wait(self, timeout_ms: int) -> None:
        """Sleep until something has arrived, at most this long."""


class Sent(NamedTuple):
    """A document that was handed over, and what became of it."""

    document: int
    at_s: float  # hand-over, since that of the first document
    latency_ms: float | None  # none if it lacks records, or never had any
    lost: int  # records that it lacks
    duplicated: int  # records of it that arrived again
    warmup: bool


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """An open-loop run, without its warm-up."""

    documents: int  # those with a latency: complete, with a word, after the warm-up
    latency: dict[str, float]  # see `percentiles`
    lateness: dict[str, float]  # of the producer against its schedule
    lost: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class ThroughputResult:
    """A closed-loop run, from the first hand-over to the last record."""

    documents_per_s: float
    records_per_s: float
    cpu_cores: float  # busy cores on average, all processes together
    lost: int
    duplicated: int


class Meter:
    """Times and counts of one run."""

    def __init__(self, expected: Sequence[int], warmup: int = 0) -> None:
        self.expected = expected  # records of each document
        self.warmup = warmup  # documents before this one don't count for the statistics
        self.complete = 0  # documents that have all their records
        self.records = 0  # distinct records that arrived
        self.first_sent_s = 0.0
        self.last_arrival_s = 0.0
        self._due_s: list[float] = []
        self._sent_s: list[float] = []  # hand-over of document i; documents are sent in order
        self._latency_s: list[float | None] = [None] * len(expected)
        self._seen: dict[int, set[object]] = {}  # keys so far of documents that are under way
        self._again: Counter[int] = Counter()  # records of each document that arrived again

    def handed_over(self, number: int, now: float, due: float) -> None:
        """Document `number` is being sent. Documents go out in the order of their numbers."""
        assert number == len(self._sent_s), f"document {number} is not the next one"
        if not number:
            self.first_sent_s = now
        self._sent_s.append(now)
        self._due_s.append(due)
        if self.expected[number]:
            self._seen[number] = set()
        else:  # no word, no record: there is nothing to wait for
            self.complete += 1

    def arrived(self, number: int, keys: Sequence[object], now: float) -> None:
        """Records of document `number` are here."""
        seen = self._seen.get(number)
        if seen is None:
            assert number < len(self._sent_s), f"records of document {number}, which was not sent"
            self._again[number] += len(keys)
            return
        before = len(seen)
        seen.update(keys)
        fresh = len(seen) - before
        if fresh < len(keys):
            self._again[number] += len(keys) - fresh
        self.records += fresh
        self.last_arrival_s = now
        if len(seen) >= self.expected[number]:
            del self._seen[number]
            self.complete += 1
            self._latency_s[number] = now - self._sent_s[number]

    @property
    def sent(self) -> int:
        """Documents handed over so far."""
        return len(self._sent_s)

    @property
    def under_way(self) -> int:
        """Documents handed over that lack records."""
        return len(self._seen)

    @property
    def lost(self) -> int:
        """Records that documents handed over still lack: what is missing when the run is over."""
        return sum(self.expected[number] - len(seen) for number, seen in self._seen.items())

    @property
    def duplicated(self) -> int:
        """Records that arrived again."""
        return self._again.total()

    def documents(self) -> Iterator[Sent]:
        """Every document handed over, with the warm-up, in order."""
        for number, sent in enumerate(self._sent_s):
            seconds = self._latency_s[number]
            yield Sent(
                number,
                sent - self.first_sent_s,
                None if seconds is None else 1000 * seconds,
                self.expected[number] - len(self._seen[number]) if number in self._seen else 0,
                self._again[number],
                number < self.warmup,
            )

    def latencies_ms(self) -> list[float]:
        """Latency of every complete document after the warm-up, in the order of the documents."""
        return [1000 * s for s in self._latency_s[self.warmup :] if s is not None]

    def lateness_ms(self) -> list[float]:
        """How long after its due time each document after the warm-up was handed over."""
        pairs = zip(self._sent_s, self._due_s, strict=True)
        return [1000 * (sent - due) for sent, due in list(pairs)[self.warmup :]]

    def latency_result(self) -> LatencyResult:
        """Statistics of an open-loop run."""
        latencies = self.latencies_ms()
        return LatencyResult(
            documents=len(latencies),
            latency=percentiles(latencies),
            lateness=percentiles(self.lateness_ms()),
            lost=self.lost,
            duplicated=self.duplicated,
        )

    def throughput_result(self, cpu_cores: float) -> ThroughputResult:
        """Statistics of a closed-loop run."""
        elapsed = self.last_arrival_s - self.first_sent_s
        return ThroughputResult(
            documents_per_s=self.complete / elapsed if elapsed > 0 else 0.0,
            records_per_s=self.records / elapsed if elapsed > 0 else 0.0,
            cpu_cores=cpu_cores,
            lost=self.lost,
            duplicated=self.duplicated,
        )

    def validate(self) -> None:
        """Check the invariants; for tests."""
        assert self.complete + self.under_way == self.sent <= len(self.expected)
        assert all(0 <= len(seen) < self.expected[i] for i, seen in self._seen.items())
        assert self.records + self.lost == sum(self.expected[: self.sent])


def open_loop(
    system: System,
    meter: Meter,
    schedule_s: Sequence[float],
    *,
    patience_s: float = 10.0,
    settle_s: float = 0.1,
) -> LatencyResult:
    """Send document i `schedule_s[i]` after the start, however late the system is.

    Ends when all records are there, or when none has come for `patience_s` after the last document;
    `settle_s` more show duplicates that come late.
    """
    with _no_collector():
        start = perf_counter()
        for number, offset in enumerate(schedule_s):
            due = start + offset
            _take(system, meter)
            # Timeouts have whole milliseconds; the rest is spun away, reading all the while.
            while (remaining := due - perf_counter()) > 0:
                if remaining >= 0.001:
                    system.wait(int(remaining * 1000))
                _take(system, meter)
                sched_yield()  # what is spun away must not keep others from working
            meter.handed_over(number, perf_counter(), due)
            system.send(number)
        _drain(system, meter, patience_s)
        _settle(system, meter, settle_s)
    return meter.latency_result()


def closed_loop(
    system: System,
    meter: Meter,
    window: int,
    *,
    patience_s: float = 10.0,
    settle_s: float = 0.1,
) -> ThroughputResult:
    """Send all documents as fast as they go with at most `window` of them under way."""
    documents = len(meter.expected)
    with _no_collector():
        wall, cpu = perf_counter(), cpu_seconds()
        last_sign = wall
        while meter.complete < documents and perf_counter() < last_sign + patience_s:
            while meter.sent < documents and meter.under_way < window:
                now = perf_counter()
                meter.handed_over(meter.sent, now, due=now)
                system.send(meter.sent - 1)
            if _take(system, meter):
                last_sign = perf_counter()
            else:
                system.wait(100)
        cores = (cpu_seconds() - cpu) / (perf_counter() - wall)
        _settle(system, meter, settle_s)
    return meter.throughput_result(cores)


def _take(system: System, meter: Meter) -> bool:
    """Count what has arrived; whether there was anything."""
    arrivals = system.receive()
    for number, keys, at in arrivals:
        meter.arrived(number, keys, at)
    return bool(arrivals)


def _drain(system: System, meter: Meter, patience_s: float) -> None:
    """Read until no document lacks records, or nothing has come for `patience_s`."""
    last_sign = perf_counter()
    while meter.under_way and perf_counter() < last_sign + patience_s:
        system.wait(100)
        if _take(system, meter):
            last_sign = perf_counter()


def _settle(system: System, meter: Meter, settle_s: float) -> None:
    """Read for `settle_s` what should not come."""
    end = perf_counter() + settle_s
    while perf_counter() < end:
        system.wait(10)
        _take(system, meter)


@contextmanager
def _no_collector() -> Iterator[None]:
    """No cyclic garbage collection while we measure: its pauses would be counted as latency."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def poisson_schedule(n: int, rate: float, seed: int) -> list[float]:
    """Due times in seconds of `n` arrivals of a Poisson process, `rate` per second on average."""
    random = Random(seed)
    return list(accumulate(random.expovariate(rate) for _ in range(n)))


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50_ms, p75_ms, p95_ms, p99_ms and max_ms: each an observed value (nearest rank)."""
    ranked = sorted(values)
    named = {f"p{p}_ms": _nearest_rank(ranked, p) for p in (50, 75, 95, 99)}
    return {**named, "max_ms": _nearest_rank(ranked, 100)}


def _nearest_rank(ranked: Sequence[float], percent: int) -> float:
    """Smallest value that `percent` of the values don't exceed; NaN if there are no values."""
    return ranked[-(-len(ranked) * percent // 100) - 1] if ranked else float("nan")


def cpu_seconds() -> float:
    """CPU time so far of this process and its descendants, those that have ended included."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
