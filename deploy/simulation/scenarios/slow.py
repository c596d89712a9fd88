"""Slow functions: a flow whose functions take long for some elements.

Only the value of an element decides whether it is slow, as in a user's function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import crc32

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import Function
from driftline.engine.wire.codec import exact


@dataclass(frozen=True, slots=True)
class Work:
    """One in `one_in` elements takes `seconds` in each function that it passes."""

    one_in: int
    seconds: float


def slowed(flow: Flow, work: Work, spend: Callable[[float], None]) -> Flow:
    """The same flow with slow functions; they call `spend` with the seconds that they take."""
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
    place = 1 if vertex.keyed and vertex.operator.many else 0  # after a Context

    def slow(*arguments: object) -> object:
        if not crc32(exact(arguments[place])) % work.one_in:
            spend(work.seconds)
        return function(*arguments)

    return slow
