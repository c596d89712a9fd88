"""Deduplication: keep only the first event of each id.

A client that gets no response can therefore resend its event.

    {"id": "e-1", "kind": "signup", "user": "ann"}

    driftline run examples/dedupe.py --input events.jsonl --output out
"""

from driftline import Flow

Event = dict[str, object]

flow = Flow("dedupe")
flow.source("events", of=Event).key_by("id").distinct().sink("first")
