"""Elements on their way out of a node's segments, and into others.

What a segment has collected for a port on a node becomes one frame: the elements of all blocks
worked off together, tracked under the smallest of their tracking times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from deploy.assembly import Assembly
from deploy.blocks import Block
from engine.codec import from_columns, labels_to_columns, pack, to_columns, unpack
from engine.errors import MalformedMessage, PayloadError
from engine.messages import Frame, columns
from engine.operators import Labels, Signs, Values, without_bad_payloads

Elements = tuple[Labels, Values, Signs]
"""Labels, payloads, and signs (None: all +1) of elements."""


def leaving(
    assembly: Assembly, feeder: int, nodes: Iterable[int]
) -> Iterator[tuple[int, int, Elements]]:
    """(node, port, elements) of what a segment has made for these nodes and not let go yet."""
    for port, outbounds in assembly.leaving[feeder]:
        for node in nodes:
            if outbounds[node].labels:
                yield node, port, outbounds[node].take()


def to_frame(feeder: int, port: int, time: int, id: int, elements: Elements) -> Frame:
    """The frame for another node."""
    labels, values, signs = elements
    encoded = labels_to_columns(labels), to_columns(values)
    return Frame(feeder, port, time, id, *encoded, () if signs is None else tuple(signs), ())


def arrived_block(frame: Frame) -> Block:
    """The elements of a frame. Raises MalformedMessage."""
    labels: Labels = from_columns(columns(frame.labels))  # type: ignore[assignment]
    values = from_columns(columns(frame.values))
    signs = list(frame.signs) or None
    if not labels or len(labels) != len(values) or len(signs or labels) != len(labels):
        raise MalformedMessage("a frame with columns of different lengths")
    if len(frame.covers) not in (0, 2):
        raise MalformedMessage("a frame that covers what is no interval")
    try:
        return Block(frame.port, frame.time, frame.id, labels, values, signs, frame.covers)
    except (TypeError, IndexError) as error:
        raise MalformedMessage(f"labels that are none: {error}") from None


def stayed_block(port: int, time: int, id: int, elements: Elements) -> Block:
    """The elements that do not leave their node. Raises PayloadError.

    Payloads pass the wire format all the same: functions see the same types wherever their input
    came from.
    """
    labels, values, signs = elements
    values = from_columns(columns(unpack(pack(to_columns(values)))))  # type: ignore[arg-type]
    return Block(port, time, id, labels, values, signs)


def hand_over(
    assembly: Assembly, port: int, elements: Elements, take: Callable[[Elements], None]
) -> bool:
    """Let elements be taken; payloads that cannot travel become failures instead.

    Returns whether there was anything to take.
    """
    try:
        take(elements)
    except PayloadError:
        vertex = assembly.plan.ports[port].vertex
        elements = without_bad_payloads(vertex, assembly.segments.failures, *elements)
        if not elements[0]:
            return False
        take(elements)
    return True
