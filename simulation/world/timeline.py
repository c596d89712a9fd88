"""Virtual time: the order of events, and which faults happen, how often, and until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from random import Random

from msgspec import Struct, field

PAUSES_S = (0.02, 0.3, 7.0)
"""Durations of a host's pause in seconds; during the longest, the coordinator declares it dead."""


class Crashed(Exception):
    """Raised by a failpoint inside a role: its process dies."""


class Partition(Struct, frozen=True):
    """One-way partition from `at_s` until `until_s`: `receiver` gets no message from `sender`."""

    sender: str
    receiver: str
    at_s: float
    until_s: float = inf


class Faults(Struct, frozen=True):
    """Probability of each fault, the time at which faults end, and the usual delays."""

    until_s: float = 0.0
    """Time in virtual seconds from which on no fault begins, except `crash_at_end`."""
    crash_at_message: float = 0.0
    """Per message: its receiver crashes before it handles the message."""
    crash_before_job: float = 0.0
    crash_after_job: float = 0.0
    """Per job of a disk: the process crashes before the disk executes the job, or after."""
    crash_before_send: float = 0.0
    """Per turn with messages: the process crashes before it sends them."""
    crash_at_consumer: float = 0.0
    """Per bundle: its consumer's process crashes before or after it stores the bundle; a consumer
    with files may also crash while it stores the bundle."""
    crash_at_end: float = 0.0
    """Per message of the shutdown: its sender or receiver dies. Also after `until_s`."""
    late_message: float = 0.0
    """Per crash: messages sent before it arrive after the successor has started."""
    job_fails: float = 0.0
    """Per job: it is not done, and reported as failed. With a smaller probability, a stored bundle,
    or an operation on a consumer's files, is reported as failed."""
    done_but_failed: float = 0.0
    """Per job: it is done, but reported as failed."""
    power: float = 0.0
    """Per crash of a consumer: it is a power failure, so data that were not synced may be lost."""
    bit_flip: float = 0.0
    """Per start of a process: a bit of its store, log or files has flipped."""
    pause: float = 0.0
    """Per message: its receiver pauses."""
    cut: float = 0.0
    """Per message: its channel, or all channels of its sender, are cut for a while."""
    repeat: float = 0.0
    """Per message: it arrives twice."""
    delay_s: float = 0.002
    """Mean delay of a message in seconds."""
    slow: float = 0.05
    """Per message: it takes 20 times as long."""
    job_s: float = 0.004
    """Mean duration of a job in seconds."""


Event = Callable[[], None]


class Timeline(Struct):
    """Clock and future events; events at the same time are executed in order of scheduling."""

    rng: Random
    faults: Faults
    counted: Counter[str] = field(default_factory=Counter)
    """Kind of event -> how often it happened; for reports and for tests of the simulation."""
    trace: Callable[[str], None] | None = None
    """Called with a line for each delivered message, each job and each fault."""
    now: float = 0.0
    """Virtual seconds since the start."""
    is_over: bool = False
    """Whether `run` should return; set by an event."""
    _events: list[tuple[float, int, Event]] = field(default_factory=list)
    """A heap of (time, number, event)."""
    _last_number: int = 0

    def run(self, until_s: float) -> bool:
        """Execute events until one sets `is_over`. Return False if `now` passes `until_s` first."""
        events = self._events
        while not self.is_over:
            self.now, _, event = heappop(events)
            if self.now > until_s:
                return False
            event()
        return True

    def step(self) -> None:
        """Execute the next event."""
        self.now, _, event = heappop(self._events)
        event()

    def clear(self) -> None:
        """Discard all events."""
        self._events.clear()

    def after(self, delay_s: float, event: Event) -> None:
        """Schedule an event in `delay_s` virtual seconds."""
        self.at_time(self.now + delay_s, event)

    def at_time(self, time: float, event: Event) -> None:
        """Schedule an event at a time, in virtual seconds since the start."""
        self._last_number += 1
        heappush(self._events, (time, self._last_number, event))

    def happens(self, probability: float) -> bool:
        """Draw whether a fault happens now."""
        return (
            probability > 0 and self.now < self.faults.until_s and self.rng.random() < probability
        )

    def draw_fault(self, probability: float, name: str) -> bool:
        """Draw whether a fault happens now; if it does, count it and add it to the trace."""
        if not self.happens(probability):
            return False
        self.counted[name] += 1
        self.add_trace(name)
        return True

    def failpoint(self, probability: float, where: str) -> None:
        """Mark a place inside a role where its process may die. Raises Crashed if it does."""
        if self.happens(probability):
            raise Crashed(where)

    def add_trace(self, text: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace(f"{self.now:11.6f}  {text}")
