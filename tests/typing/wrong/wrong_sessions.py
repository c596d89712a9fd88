"""Wrong uses of examples/sessions.py: sessions with aggregates."""

from sessions import Visit

from driftline import Count, Flow, Session

flow = Flow("wrong sessions")
visits = flow.source("visits", of=Visit, event_time="at")
by_user = visits.key_by("user")
sessions = by_user.window(Session("30m"))

# No key.
visits.window(Session("30m"))  # error: attr-defined

# A duration in place of windows.
by_user.window("30m")  # error: arg-type

# No gap.
by_user.window(Session())  # error: call-arg

# A class, or a function, in place of an aggregate.
sessions.aggregate(visits=Count)  # error: arg-type
sessions.aggregate(visits=len)  # error: arg-type

# Windows without an aggregate.
sessions.sink("sessions")  # error: attr-defined
