"""Sessions: group the visits of each user, split at gaps of more than half an hour.

The field "at" is the event time, in seconds. A visit may arrive up to 15 minutes after later
ones. A session leaves once the watermark has passed its end; at the end of the input the last
sessions leave.

    {"user": "ann", "at": 1700000000, "page": "/"}

    driftline run examples/sessions.py --input visits.jsonl --output out
"""

from typing import TypedDict

from driftline import Collect, Count, Flow, Session


class Visit(TypedDict):
    """A page view by a user."""

    user: str
    at: int
    page: str


flow = Flow("sessions")
(
    flow.source("visits", of=Visit, event_time="at", max_delay="15m")
    .key_by("user")
    .window(Session("30m"))
    .aggregate(visits=Count(), pages=Collect("page"))
    .sink("sessions")
)
