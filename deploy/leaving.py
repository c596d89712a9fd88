"""Frames on their way out of a node's segments, and into others.

What a segment has collected for a port on a node becomes one frame: the elements of all blocks
worked off together, tracked under the smallest of their tracking times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from deploy.assembly import Assembly
from deploy.blocks import Block
from engine.codec import from_columns, labels_to_columns, pack, to_columns, travelled, unpack
from engine.context import Failure
from engine.errors import MalformedMessage, PayloadError
from engine.messages import Frame, columns
from engine.operators import Labels


def leaving_frames(
    assembly: Assembly, feeder: int, time: int, new_id: Callable[[], int]
) -> Iterator[tuple[int, Frame]]:
    """(node, frame) for everything that a segment has made and that has not left yet."""
    for port, outbounds in assembly.leaving[feeder]:
        for node, outbound in enumerate(outbounds):
            if outbound.labels:
                labels, values, signs = outbound.take()
                yield (
                    node,
                    Frame(
                        feeder,
                        port,
                        time,
                        new_id(),
                        labels_to_columns(labels),
                        to_columns(values),
                        () if signs is None else tuple(signs),
                        (),
                    ),
                )


def without_bad_payloads(assembly: Assembly, frame: Frame) -> Frame | None:
    """What is left of a frame when payloads that cannot travel are failures instead, if any."""
    vertex = assembly.plan.ports[frame.port].vertex
    assert vertex.key is not None
    labels: Labels = _labels(frame)
    good: list[int] = []
    values = from_columns(columns(frame.values))
    for i, value in enumerate(values):
        try:
            travelled(value)
        except PayloadError as error:
            failure = Failure.of(vertex.name, vertex.key(value), value, error)
            assembly.segments.failures.add(labels[i], failure, frame.signs[i] if frame.signs else 1)
        else:
            good.append(i)
    if not good:
        return None
    return Frame(
        frame.feeder,
        frame.port,
        frame.time,
        frame.id,
        labels_to_columns([labels[i] for i in good]),
        to_columns([values[i] for i in good]),
        tuple(frame.signs[i] for i in good) if frame.signs else (),
        (),
    )


def arrived_block(frame: Frame) -> Block:
    """The elements of a frame. Raises MalformedMessage."""
    labels = _labels(frame)
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


def stayed_block(frame: Frame) -> Block:
    """The elements of a frame that does not leave its node. Raises PayloadError.

    They pass the wire format all the same: functions see the same types wherever their input came
    from.
    """
    values = from_columns(columns(unpack(pack(frame.values))))  # type: ignore[arg-type]
    return Block(
        frame.port, frame.time, frame.id, _labels(frame), values, list(frame.signs) or None
    )


def _labels(frame: Frame) -> Labels:
    return from_columns(columns(frame.labels))  # type: ignore[return-value]
