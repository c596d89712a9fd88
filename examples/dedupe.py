"""Deduplication: the first event of each id.

So a client that gets no answer can send its event again.

    {"id": "e-1", "kind": "signup", "user": "ann"}

    driftline run examples/dedupe.py --input events.jsonl --output out
"""

from driftline import Context, Flow, ValueState

Event = dict[str, object]


def first(context: Context, event: Event, seen: ValueState[bool]) -> list[Event]:
    """The event, if it is the first with its id."""
    if seen.get(False):
        return []
    seen.set(True)
    return [event]


flow = Flow("dedupe")
flow.source("events", of=Event).key_by("id").process(first, ValueState("seen")).sink("first")
