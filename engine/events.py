"""Events: human-readable log lines with machine-readable fields.

Every line goes to the logger ``driftline``. Its fields are the attribute `FIELDS` of the record, a
dict whose ``event`` names the event:

    >>> event_fields("recovery", incarnation=3, reason="node-1 has been restarted")
    {'fields': {'event': 'recovery', 'incarnation': 3, 'reason': 'node-1 has been restarted'}}

`FailureLog` is for repeated failures, `RateLimitedLog` for events that a peer can cause at will.
Both take the time from their caller, so that protocol roles can use them.
"""

from __future__ import annotations

import logging
from math import inf

log = logging.getLogger("driftline")

FIELDS = "fields"
"""The attribute of a log record that contains the fields."""

PAUSE_S = 10.0
"""Default of the minimum time between two lines of a `RateLimitedLog`, in seconds."""

REPEAT_LOG_S = 30.0
"""Interval at which a lasting failure is logged again, in seconds."""

Field = str | int | float | bool | None

Fields = list[dict[str, Field | dict[str, Field]]]
"""A field that is a list of objects, for example of inputs."""


def event_fields(event: str, **fields: Field | Fields) -> dict[str, dict[str, Field | Fields]]:
    """Return the argument `extra` of a log call. Floats are rounded to 6 digits."""
    rounded = {k: round(v, 6) if isinstance(v, float) else v for k, v in fields.items()}
    return {FIELDS: {"event": event, **rounded}}


class FailureLog:
    """Log of a repeated failure: the first one at once, then one per 30 s, and the next success."""

    def __init__(self, event: str) -> None:
        self.count = 0
        """Failures since the last success."""
        self._event = event
        self._since = 0.0
        """Time of the first of these failures."""
        self._next_log_at = 0.0

    def record_failure(self, now: float, text: str, **fields: Field) -> None:
        """Record a failure; `now`: seconds, monotonic; `text`: a sentence with the reason."""
        self.count += 1
        if self.count == 1:
            self._since = now
        elif now < self._next_log_at:
            return
        self._next_log_at = now + REPEAT_LOG_S
        duration_s = now - self._since
        repetition = "" if self.count == 1 else f" (for {duration_s:.0f} s now, {self.count} times)"
        event = event_fields(
            self._event, reason=text, count=self.count, seconds=duration_s, **fields
        )
        log.warning("%s%s", text, repetition, extra=event)

    def record_success(self, now: float, text: str, **fields: Field) -> None:
        """Record a success. Log it if it follows failures."""
        if not self.count:
            return
        duration_s, count = now - self._since, self.count
        self.count = 0
        event = event_fields(f"{self._event}-over", count=count, seconds=duration_s, **fields)
        times = "once" if count == 1 else f"{count} times"
        log.warning("%s; it had failed %s in %.1f s", text, times, duration_s, extra=event)


class RateLimitedLog:
    """Log of one kind of event: a line for the first one at once, then at most one per `pause_s`.

    A line contains the number of events since the last line. The owner calls `log_if_due`
    periodically, with or without events, and `close` at the end, which logs the rest. Invariant:
    each event is counted in exactly one line.
    """

    def __init__(
        self, event: str, what: str, level: int = logging.WARNING, pause_s: float = PAUSE_S
    ) -> None:
        """`event`: name of the event in the fields; `what`: beginning of each line, what happened;
        `pause_s`: minimum time between two lines, in seconds."""
        self._event = event
        self._title = what
        self._level = level
        self._pause_s = pause_s
        self._last = ""
        """Reason of the last event."""
        self._count = 0
        """Events since the last line."""
        self._next_at = -inf

    @property
    def has_unlogged(self) -> bool:
        """Whether there are events that no line counts yet."""
        return self._count > 0

    def add(self, now: float, reason: str, count: int = 1) -> None:
        """Record events. `now`: seconds, monotonic; `reason`: of the last event."""
        self._count += count
        self._last = reason
        self.log_if_due(now)

    def log_if_due(self, now: float) -> None:
        """Log the events since the last line, if a line is due."""
        if self._count and now >= self._next_at:
            self._next_at = now + self._pause_s
            self.close()

    def close(self) -> None:
        """Log the events since the last line at once, without waiting for `pause_s`."""
        count, self._count = self._count, 0
        if count:
            self._log(count, self._last)

    def _log(self, count: int, last: str) -> None:
        times = f" {count} times, the last time" * (count > 1)
        fields = event_fields(self._event, count=count, reason=last)
        log.log(self._level, "%s%s: %s", self._title, times, last, extra=fields)
