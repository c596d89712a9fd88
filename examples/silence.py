"""Silence: raise an alert if a sensor sends nothing for 5 minutes.

Each reading sets a timer. When it fires, 5 minutes of event time later, all readings of these 5
minutes have arrived, even if they were out of order. `at` of an alert is the time of the sensor's
last reading, in seconds. Readings of other sensors and the ticks of a live source let timers fire.

    {"sensor": "s-1", "at": 1700000000, "celsius": 21.5}

    driftline run examples/silence.py --input readings.jsonl --output out
"""

from collections.abc import Iterator
from typing import TypedDict

from driftline import Flow, MapState, TimedContext, Timer


class Reading(TypedDict):
    """A reading of a sensor."""

    sensor: str
    at: int
    celsius: float


Alert = tuple[str, int]
"""Sensor, and the time of its last reading."""


def read(context: TimedContext, reading: Reading, times: MapState[int, int]) -> tuple[Alert, ...]:
    """Store the time of a reading, and set its timer, unless it is late."""
    if context.event_time >= context.watermark:
        times[context.event_time] = reading["at"]
        context.timers.set(str(context.event_time), after="5m")
    return ()


def alert(context: TimedContext, timer: Timer, times: MapState[int, int]) -> Iterator[Alert]:
    """Yield an alert if no reading follows within 5 minutes, and the input has not ended there."""
    last = times.pop(int(timer.name))
    followed = any(time <= timer.at for time in times)
    if not followed and (times or not context.at_end):
        yield context.key, last


flow = Flow("silence")
(
    flow.source("readings", of=Reading, event_time="at", max_delay="30s", tick="1s")
    .key_by("sensor")
    .process(read, MapState[int, int]("times"), on_timer=alert, fields=("sensor", "at"))
    .sink("alerts")
)
