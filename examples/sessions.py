"""Sessions: the visits of each user, divided where half an hour passes without a visit.

Time is event time, from the records: seconds in "at". A visit more than GAP seconds after the one
before ends the user's session, whose output leaves then, and begins another session.

    {"user": "ann", "at": 1700000000, "page": "/"}

    driftline run examples/sessions.py --input visits.jsonl --output out
"""

from collections.abc import Iterator
from typing import TypedDict

from driftline import Context, Flow, ValueState

GAP = 30 * 60


class Visit(TypedDict):
    """A user has seen a page."""

    user: str
    at: int
    page: str


Span = tuple[int, int, int]
"""Time of the first and of the last visit of a session, and the number of its visits."""


def sessions(
    context: Context, visit: Visit, session: ValueState[Span]
) -> Iterator[tuple[str, int, int, int]]:
    """The session before, if the visit begins another one."""
    at = visit["at"]
    begin, last, visits = session.get((at, at, 0))
    if at - last > GAP:
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
