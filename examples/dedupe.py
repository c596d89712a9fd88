"""Deduplication: the first event of each id.

So a client that gets no answer can send its event again.

    {"id": "e-1", "kind": "signup", "user": "ann"}

    driftline run examples/dedupe.py --input events.jsonl --output out
"""

from driftline import Flow

Event = dict[str, object]

flow = Flow("dedupe")
flow.source("events", of=Event).key_by("id").distinct().sink("first")
