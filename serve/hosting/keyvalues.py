"""Specifications of the key-value views of a flow, one for each sink."""

from __future__ import annotations

from driftline.engine.flow.flow import Flow
from driftline.serve.hosting.config import ViewLocation, ViewSpec
from driftline.serve.views.keyvalue import KeyValueView


def views_of(flow: Flow) -> tuple[ViewSpec, ...]:
    """Return the spec of a key-value view for each sink of a flow, with the sink's name."""
    return tuple(
        ViewSpec(sink.name, f"{__name__}:make", options={"sink": str(number)})
        for number, sink in enumerate(flow.sinks)
    )


def make(place: ViewLocation) -> KeyValueView:
    """Make the view of the sink whose number is in the option `sink`."""
    return KeyValueView(int(place.options["sink"]))
