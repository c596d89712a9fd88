"""Wrong uses of examples/sessions.py: sessions with aggregates."""

from driftline import Count, Flow, Session
from examples.sessions import Visit

flow = Flow("wrong sessions")
visits = flow.source("visits", of=Visit, event_time="at")
by_user = visits.key_by("user")
sessions = by_user.window(Session("30m"))

# No key.
visits.window(Session("30m"))  # type: ignore[attr-defined]

# A duration in place of windows.
by_user.window("30m")  # type: ignore[arg-type]

# No gap.
by_user.window(Session())  # type: ignore[call-arg]

# A class, or a function, in place of an aggregate.
sessions.aggregate(visits=Count)  # type: ignore[arg-type]
sessions.aggregate(visits=len)  # type: ignore[arg-type]

# Windows without an aggregate.
sessions.sink("sessions")  # type: ignore[attr-defined]
