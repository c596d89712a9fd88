"""Faults: which failures may happen in a simulated world, how often, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

PAUSES_S = (0.02, 0.3, 7.0)
"""Seconds that a paused host stands still; after the longest the coordinator gives it up."""


class Crashed(Exception):
    """Raised by a failpoint inside a party: its process dies."""


@dataclass(frozen=True, slots=True)
class Hole:
    """From the time `at_s` until `until_s` nothing that `sender` sends arrives at `receiver`."""

    sender: str
    receiver: str
    at_s: float
    until_s: float = inf


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, the time at which faults end, and the usual delays."""

    until: float = 0.0
    """No fault happens after this time, in virtual seconds."""
    crash_at_message: float = 0.0
    crash_before_job: float = 0.0
    crash_after_job: float = 0.0
    crash_before_send: float = 0.0
    crash_at_consumer: float = 0.0
    """Before and after a consumer stores a bundle; in files, also in the middle of it."""
    crash_at_end: float = 0.0
    """Per message of the shutdown: its sender or receiver dies. Also after `until`."""
    linger: float = 0.0
    """Per crash: messages sent before it arrive after the successor has started."""
    job_fails: float = 0.0
    done_but_failed: float = 0.0
    """Per job: it is done, but reported as failed."""
    power: float = 0.0
    """Per crash of a consumer: it is a power failure, so data that were not synced may be lost."""
    rot: float = 0.0
    """Per start of a process: a bit of its store, log or files has flipped."""
    pause: float = 0.0
    """Per message: its receiver stands still for a while."""
    cut: float = 0.0
    """Per message: its channel is cut for a while."""
    repeat: float = 0.0
    """Per message: it arrives twice."""
    delay_s: float = 0.002
    """The mean delay of a message."""
    slow: float = 0.05
    """Per message: it takes 20 times as long."""
    job_s: float = 0.004
    """The mean duration of a job."""
