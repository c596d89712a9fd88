"""Wrong uses of examples/dedupe.py: distinct events."""

from collections.abc import Iterable

import driftline
from driftline import Context, Flow, ValueState
from examples.dedupe import Event

flow = Flow("wrong dedupe")
events = flow.source("events", of=Event)

# Distinct elements of a stream without a key, and of another type.
events.distinct()  # type: ignore[attr-defined]
events.key_by("id").distinct().map(str.upper)  # type: ignore[arg-type]


def first(context: Context, event: Event, seen: ValueState[bool]) -> list[Event]:
    return [] if seen.get(False) else [event]


# The output of an operator is no longer an event.
texts = events.map(lambda event: str(event["id"]))
texts.key_by(0).process(first, ValueState[bool]("seen"))  # type: ignore[arg-type]
texts.map(lambda text: text["id"])  # type: ignore[index]


# One output for many.
def names(event: Event) -> Iterable[str]:
    return event


events.map(names).map(str.upper)  # type: ignore[arg-type]

# A source whose declared type is not a type.
flow.source("numbers", of=5)  # type: ignore[call-overload]

# Methods that Driftline does not have.
driftline.Join("an hour")  # type: ignore[attr-defined]
