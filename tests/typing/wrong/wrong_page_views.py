"""Wrong uses of examples/page_views.py: a source with event times, and its windows."""

from page_views import View

from driftline import Flow, Tumbling

flow = Flow("wrong page views")
views = flow.source("views", of=View, event_time="at")

# A misspelt field.
flow.source("more", of=View, event_time=lambda view: view["time"])  # error: typeddict-item

# No duration.
flow.source("again", of=View, event_time="at", max_delay=None)  # error: call-overload

minutes = views.key_by("user").window(Tumbling("1m"))

# A stream, not a method.
minutes.late().sink("late")  # error: operator


# A function that takes another type than the elements.
def larger(one: int, other: int) -> int:
    return max(one, other)


minutes.reduce(larger)  # error: arg-type
