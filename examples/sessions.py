"""Sessions: group the visits of each user, split at gaps of more than half an hour.

The field "at" is the event time, in seconds. Visits may be out of order by up to 15 minutes. The
flow emits a session once the watermark has passed its end. At the end of the input, it emits the
remaining sessions.

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
