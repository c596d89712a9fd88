"""Wrong uses of examples/page_views.py: a source with event times, and its windows."""

from driftline import Flow, Tumbling
from examples.page_views import View

flow = Flow("wrong page views")
views = flow.source("views", of=View, event_time="at")

# A misspelt field.
flow.source("more", of=View, event_time=lambda view: view["time"])  # type: ignore[typeddict-item]

# No duration.
flow.source("again", of=View, event_time="at", max_delay=None)  # type: ignore[call-overload]

minutes = views.key_by("user").window(Tumbling("1m"))

# A stream, not a method.
minutes.late().sink("late")  # type: ignore[operator]


# A function that takes another type than the elements.
def larger(one: int, other: int) -> int:
    return max(one, other)


minutes.reduce(larger)  # type: ignore[arg-type]
