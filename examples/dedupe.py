"""Deduplication: the first event of each id, whatever else is in it.

Who sends an event again, because no answer came, does no harm.

    {"id": "e-1", "kind": "signup", "user": "ann"}

    driftline run examples/dedupe.py --input events.jsonl --output out
"""

from driftline import Context, Flow, ValueState

Event = dict[str, object]


def first(context: Context, event: Event, seen: ValueState[bool]) -> list[Event]:
    """The event, if none of its id has come before."""
    if seen.get(False):
        return []
    seen.set(True)
    return [event]


flow = Flow("dedupe")
flow.source("events", of=Event).key_by("id").process(first, ValueState("seen")).sink("first")
