"""Page views: count the views of each user and minute; late views go to a sink of their own.

A view is not late if its event time is at most 10 seconds before the largest one so far: the row of
its minute contains it.

    {"user": "ann", "at": "2026-03-01T12:00:05Z", "page": "/"}

    driftline run examples/page_views.py --input views.jsonl --output out
"""

from typing import TypedDict

from driftline import Count, CountDistinct, Flow, Tumbling


class View(TypedDict):
    """A page view by a user."""

    user: str
    at: str
    page: str


flow = Flow("page views")
minutes = (
    flow.source("views", of=View, event_time="at", max_delay="10s")
    .key_by("user")
    .window(Tumbling("1m"))
)
minutes.aggregate(views=Count(), pages=CountDistinct("page")).sink("minutes")
minutes.late.sink("late")
