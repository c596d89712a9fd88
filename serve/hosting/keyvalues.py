"""The key-value views of any flow, one of each sink, as processes host them."""

from __future__ import annotations

from driftline.engine.flow.flow import Flow
from driftline.serve.hosting.config import ViewLocation, ViewSpec
from driftline.serve.views.keyvalue import KeyValueView


def views_of(flow: Flow) -> tuple[ViewSpec, ...]:
    """A key-value view of each sink of a flow, with the sink's name."""
    return tuple(
        ViewSpec(sink.name, f"{__name__}:make", options={"sink": str(number)})
        for number, sink in enumerate(flow.sinks)
    )


def make(place: ViewLocation) -> KeyValueView:
    """The view of the sink with the number `sink` among the options."""
    return KeyValueView(int(place.options["sink"]))
