"""Events: log lines for people that carry fields for programs.

Every line goes to the logger ``driftline``. Its fields are the attribute `FIELDS` of the record, a
dict whose ``event`` names what has happened:

    >>> about("recovery", incarnation=3, reason="node-1 has been restarted")
    {'fields': {'event': 'recovery', 'incarnation': 3, 'reason': 'node-1 has been restarted'}}

`Trouble` is for what fails again and again. It needs to be told the time, so that protocol roles
can use it.
"""

from __future__ import annotations

import logging

log = logging.getLogger("driftline")

FIELDS = "fields"
"""The attribute of a log record that holds the fields."""

TOLD_EVERY_S = 30.0
"""How often trouble that lasts is told again, in seconds."""

Field = str | int | float | bool | None

Fields = list[dict[str, Field | dict[str, Field]]]
"""A field that is a list: of inputs, for example."""


def about(event: str, **fields: Field | Fields) -> dict[str, dict[str, Field | Fields]]:
    """The argument `extra` of a log call."""
    exact = {k: round(v, 6) if isinstance(v, float) else v for k, v in fields.items()}
    return {FIELDS: {"event": event, **exact}}


class Trouble:
    """Tells of something that fails again and again: at once, every 30 s, and when it is over."""

    def __init__(self, event: str) -> None:
        self.count = 0
        """Failures since it last worked."""
        self._event = event
        self._since = 0.0
        self._tell_at = 0.0

    def failed(self, now: float, text: str, **fields: Field) -> None:
        """It has failed; `now`: seconds, monotonic; `text`: a sentence with the reason."""
        self.count += 1
        if self.count == 1:
            self._since = now
        elif now < self._tell_at:
            return
        self._tell_at = now + TOLD_EVERY_S
        lasts = now - self._since
        again = "" if self.count == 1 else f" (for {lasts:.0f} s now, {self.count} times)"
        told = about(self._event, reason=text, count=self.count, seconds=lasts, **fields)
        log.warning("%s%s", text, again, extra=told)

    def over(self, now: float, text: str, **fields: Field) -> None:
        """It has worked. Tells so if it had failed before."""
        if not self.count:
            return
        lasted, count = now - self._since, self.count
        self.count = 0
        told = about(f"{self._event}-over", count=count, seconds=lasted, **fields)
        times = "once" if count == 1 else f"{count} times"
        log.warning("%s; it had failed %s in %.1f s", text, times, lasted, extra=told)
