"""Wrong uses of examples/silence.py: an operator with a timer."""

from driftline import Context, Flow, ValueState
from examples.silence import Reading, alert, read

flow = Flow("wrong silence")
readings = flow.source("readings", of=Reading, event_time="at")
by_sensor = readings.key_by("sensor")
last = ValueState[int]("last")

# The timer's function is missing.
by_sensor.process(read, last)  # type: ignore[arg-type]

# The state is missing.
by_sensor.process(read, on_timer=alert)  # type: ignore[arg-type, call-arg]

# A function that takes an element in place of a timer.
by_sensor.process(read, last, on_timer=read)  # type: ignore[arg-type]


# A context without timers.
def without(context: Context, reading: Reading, last: ValueState[int]) -> list[int]:
    context.timers.set("silence", after="5m")  # type: ignore[attr-defined]
    return []


by_sensor.process(without, last)
