"""Sessions: group the visits of each user, split at gaps of more than half an hour.

Time is event time: seconds, from the field "at". A visit more than GAP seconds after the previous
one closes the user's session, emits it, and starts a new session.

    {"user": "ann", "at": 1700000000, "page": "/"}

    driftline run examples/sessions.py --input visits.jsonl --output out
"""

from collections.abc import Iterator
from typing import TypedDict

from driftline import Context, Flow, ValueState

GAP_S = 30 * 60


class Visit(TypedDict):
    """A page view by a user."""

    user: str
    at: int
    page: str


Span = tuple[int, int, int]
"""Times of the first and last visit of a session, and the number of its visits."""


def sessions(
    context: Context, visit: Visit, session: ValueState[Span]
) -> Iterator[tuple[str, int, int, int]]:
    """Yield the previous session, if the visit starts a new one."""
    at = visit["at"]
    begin, last, visits = session.get((at, at, 0))
    if at - last > GAP_S:
        yield visit["user"], begin, last, visits
        begin, last, visits = at, at, 0
    session.set((min(begin, at), max(last, at), visits + 1))


flow = Flow("sessions")
(
    flow.source("visits", of=Visit)
    .key_by("user")
    .process(sessions, ValueState("session"), fields=("user", "begin", "end", "visits"))
    .sink("sessions")
)
