"""Elements on their way out of a node's segments, and into others.

What a segment has collected for a port on a node becomes one frame: the elements of all blocks
worked off together, tracked under the smallest of their tracking times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from deploy.assembly import Assembly
from deploy.blocks import Block
from engine import runs
from engine.codec import Columns, from_columns, pack, to_columns, unpack
from engine.errors import MalformedMessage, PayloadError
from engine.messages import Frame, columns
from engine.operators import Elements, without_bad_payloads


def leaving(
    assembly: Assembly, feeder: int, nodes: Iterable[int]
) -> Iterator[tuple[int, int, list[Elements]]]:
    """(node, port, blocks) of what a segment has made for these nodes and not let go yet."""
    for port, outbounds in assembly.leaving[feeder]:
        for node in nodes:
            if outbounds[node].blocks:
                yield node, port, outbounds[node].take()


def to_frame(feeder: int, port: int, time: int, id: int, pieces: list[Elements]) -> Frame:
    """The frame for another node."""
    encoded = tuple(
        (runs.to_columns(labels), to_columns(values), tuple(signs or ()))
        for labels, values, signs in pieces
    )
    return Frame(feeder, port, time, id, encoded, ())


def arrived_block(frame: Frame) -> Block:
    """The elements of a frame. Raises MalformedMessage."""
    if not frame.pieces:
        raise MalformedMessage("a frame without elements")
    if len(frame.covers) not in (0, 2):
        raise MalformedMessage("a frame that covers what is no interval")
    try:
        pieces = [_arrived_piece(*piece) for piece in frame.pieces]
        return Block(frame.port, frame.time, frame.id, pieces, frame.covers)
    except (TypeError, IndexError) as error:
        raise MalformedMessage(f"elements that are none: {error}") from None


def _arrived_piece(labels: Columns, values: Columns, signs: tuple[int, ...]) -> Elements:
    found = runs.from_columns_of_labels(columns(labels))
    payloads = from_columns(columns(values))
    count = len(payloads)
    if not count or len(found) != count or (signs and len(signs) != count):
        raise MalformedMessage("a frame with columns of different lengths")
    if signs and set(map(type, signs)) != {int}:
        raise MalformedMessage("signs that are none")
    return found, payloads, list(signs) or None


def stayed_block(port: int, time: int, id: int, pieces: list[Elements]) -> Block:
    """The elements that do not leave their node. Raises PayloadError.

    Payloads pass the wire format all the same: functions see the same types wherever their input
    came from.
    """
    stayed: list[Elements] = []
    for labels, values, signs in pieces:
        passed = from_columns(columns(unpack(pack(to_columns(values)))))  # type: ignore[arg-type]
        stayed.append((labels, passed, signs))
    return Block(port, time, id, stayed)


def hand_over(
    assembly: Assembly, port: int, pieces: list[Elements], take: Callable[[list[Elements]], None]
) -> bool:
    """Let elements be taken; payloads that cannot travel become failures instead.

    Returns whether there was anything to take.
    """
    try:
        take(pieces)
    except PayloadError:
        vertex, failures = assembly.plan.ports[port].vertex, assembly.segments.failures
        good = [without_bad_payloads(vertex, failures, piece) for piece in pieces]
        pieces = [piece for piece in good if piece[0]]
        if not pieces:
            return False
        take(pieces)
    return True
