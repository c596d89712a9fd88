"""Sessions: the visits of each user, parted where nothing came for half an hour.

Time is event time, as the records tell it: seconds in "at". A visit more than GAP after the one
before it ends the user's session, which leaves then, and begins another.

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
"""When a session began, when its last visit was, and how many it has."""


def sessions(
    context: Context, visit: Visit, session: ValueState[Span]
) -> Iterator[tuple[str, int, int, int]]:
    """The session that a visit ends, if it ends one."""
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
