"""Wrong uses of examples/sessions.py: an operator of one state."""

from sessions import Span, Visit, sessions

from driftline import Context, Flow, ListState, ValueState

flow = Flow("wrong sessions")
visits = flow.source("visits", of=Visit)
by_user = visits.key_by("user")

# The state is missing.
by_user.process(sessions)  # error: arg-type

# One too many.
by_user.process(sessions, ValueState[Span]("session"), ValueState[int]("more"))  # error: arg-type

# Another class of state.
by_user.process(sessions, ListState[Span]("session"))  # error: arg-type

# Another type of value.
by_user.process(sessions, ValueState[tuple[int, int]]("session"))  # error: arg-type

# A function of process for scan.
by_user.scan(sessions, ValueState[Span]("session"))  # error: arg-type

# No key.
visits.process(sessions, ValueState[Span]("session"))  # error: attr-defined


# One output where any number is meant.
def last(context: Context, visit: Visit, session: ValueState[Span]) -> int:
    return session.get((0, 0, 0))[2]


by_user.process(last, ValueState[Span]("session"))  # error: arg-type
