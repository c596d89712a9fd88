"""Functions that take their time: a flow whose functions are slow for some elements.

Which elements those are depends on nothing but their values, as it would for a user's function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import crc32

from driftline.engine.flow.flow import Flow, Function, Vertex
from driftline.engine.wire.codec import exact


@dataclass(frozen=True, slots=True)
class Work:
    """One of `one_in` elements takes `seconds` in each function that has it."""

    one_in: int
    seconds: float


def slowed(flow: Flow, work: Work, spend: Callable[[float], None]) -> Flow:
    """The same flow, whose functions `spend` time."""
    vertices = [
        vertex
        if vertex.function is None
        else replace(vertex, function=_slow(vertex, vertex.function, work, spend))
        for vertex in flow.vertices
    ]
    return Flow(flow.name, flow.groups, vertices)


def _slow(
    vertex: Vertex, function: Function, work: Work, spend: Callable[[float], None]
) -> Function:
    place = 1 if vertex.kind == "process" else 0

    def slow(*arguments: object) -> object:
        if not crc32(exact(arguments[place])) % work.one_in:
            spend(work.seconds)
        return function(*arguments)

    return slow
