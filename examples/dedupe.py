"""Deduplication: keep the first event of each id, and forget an id after a day.

A client that gets no response can therefore resend its event within a day.

    {"id": "e-1", "at": "2026-03-01T12:00:05Z", "kind": "signup", "user": "ann"}

    driftline run examples/dedupe.py --input events.jsonl --output out
"""

from typing import TypedDict

from driftline import Flow


class Event(TypedDict):
    """An event of a user."""

    id: str
    at: str
    kind: str
    user: str


flow = Flow("dedupe")
events = flow.source("events", of=Event, event_time="at", max_delay="1h")
events.key_by("id").distinct(ttl="1d").sink("first")
