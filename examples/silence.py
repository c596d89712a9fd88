"""Silence: raise an alert if a sensor sends nothing for 5 minutes.

Each reading moves the timer of its sensor. The timer fires once the readings of all sensors, or the
ticks of a live source, show that 5 minutes have passed. `at` of an alert is the time of the
sensor's last reading, in seconds.

    {"sensor": "s-1", "at": 1700000000, "celsius": 21.5}

    driftline run examples/silence.py --input readings.jsonl --output out
"""

from collections.abc import Iterator
from typing import TypedDict

from driftline import Flow, TimedContext, Timer, ValueState


class Reading(TypedDict):
    """A reading of a sensor."""

    sensor: str
    at: int
    celsius: float


Alert = tuple[str, int]
"""Sensor, and the time of its last reading."""


def read(context: TimedContext, reading: Reading, last: ValueState[int]) -> tuple[Alert, ...]:
    """Set the timer again, unless a later reading has set it."""
    if reading["at"] > last.get(reading["at"] - 1):
        last.set(reading["at"])
        context.timers.set("silence", after="5m")
    return ()


def alert(context: TimedContext, timer: Timer, last: ValueState[int]) -> Iterator[Alert]:
    """Yield an alert, unless the timer fires because the input has ended."""
    if not context.at_end:
        yield context.key, last.get(0)


flow = Flow("silence")
(
    flow.source("readings", of=Reading, event_time="at", max_delay="30s", tick="1s")
    .key_by("sensor")
    .process(read, ValueState[int]("last"), on_timer=alert, fields=("sensor", "at"))
    .sink("alerts")
)
