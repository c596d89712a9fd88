"""Faults: what may fail in a simulated world, how often, and until when."""

from __future__ import annotations

from dataclasses import dataclass

PAUSES_S = (0.02, 0.3, 7.0)
"""How long a paused host may stand still; the last is more than the coordinator waits for."""


class Crashed(Exception):
    """Raised by a failpoint inside a party: its process is gone."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Which faults may happen, as probabilities; and when they end."""

    until: float = 0.0
    """Virtual seconds after which nothing fails any more."""
    crash_at_message: float = 0.0
    crash_before_job: float = 0.0
    crash_after_job: float = 0.0
    crash_before_send: float = 0.0
    crash_at_consumer: float = 0.0
    """Before, while and after a consumer stores a bundle."""
    """Before and after a consumer stores a bundle."""
    crash_at_end: float = 0.0
    """Per message of the shutdown: that who sends or takes it dies then. It comes last, so it does
    not matter when other faults end."""
    linger: float = 0.0
    """Per crash: that what was sent before it comes when the next process is at work already."""
    job_fails: float = 0.0
    done_but_failed: float = 0.0
    """Per job: that it is done and reported as failed."""
    power: float = 0.0
    """Per crash of a consumer: that it is a power failure, which takes what was not synced."""
    rot: float = 0.0
    """Per start of a process: that a bit of its store, log or record has flipped."""
    pause: float = 0.0
    """Per message: that its receiver stops for a while."""
    cut: float = 0.0
    """Per message: that its channel is cut."""
    repeat: float = 0.0
    """Per message: that it comes twice."""
    delay_s: float = 0.002
    slow: float = 0.05
    """Per message: that it takes 20 times as long."""
    job_s: float = 0.004
    """How long a job takes on average."""
