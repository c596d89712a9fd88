"""Outputs on their way to a consumer: one blob for the outputs of one time.

A frontier is a time, so the outputs of one time always leave together. Therefore a bundle is a
sequence of blobs that does not depend on where the bundles were cut, and the determinism guard
can be one running checksum over blobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import Label
from driftline.engine.wire import label_columns
from driftline.engine.wire.codec import PLAIN, decode_rows, pack, pack_rows, unpack
from driftline.engine.wire.label_columns import Labels
from driftline.engine.wire.messages import checked_columns


@dataclass(frozen=True, slots=True)
class Item:
    """An output."""

    label: Label
    """(time of the record, number of the source, child numbers ...)"""
    sink: int
    """The number of its sink in the flow, from 0; -1 for a dead letter."""
    value: object
    """The payload, as it arrives: a sequence is a tuple."""


def to_blob(
    labels: Labels, sinks: int | Sequence[int], values: Sequence[object], packed: bytes = b""
) -> bytes:
    """Encode outputs, in the order in which they are given; `sinks` may be one for all.

    `packed`: the values in the wire format, if that is known.
    """
    if not isinstance(sinks, int) and sinks.count(sinks[0]) == len(sinks):
        sinks = sinks[0]  # equal outputs have equal bytes, however they came
    # An array of three, each packed by itself.
    return (
        _THREE
        + pack(label_columns.encode_labels(labels))
        + pack(sinks)
        + (packed or pack_rows(values))
    )


_THREE = b"\x93"


def from_blob(blob: bytes) -> list[Item]:
    """Decode what `to_blob` made. Raises MalformedMessage."""
    parts = unpack(blob)
    if not isinstance(parts, tuple) or len(parts) != 3:
        raise MalformedMessage("not a blob of outputs")
    try:
        labels = decode_rows(checked_columns(parts[0]))
        values = decode_rows(checked_columns(parts[2]))
        sinks = [parts[1]] * len(labels) if isinstance(parts[1], int) else list(parts[1])
    except TypeError as error:
        raise MalformedMessage(f"not a blob of outputs: {error}") from None
    if not len(labels) == len(sinks) == len(values):
        raise MalformedMessage("a blob with columns of different lengths")
    return [Item(*row) for row in zip(labels, sinks, values, strict=True)]  # type: ignore[arg-type]


def running_checksum(checksum: int, blob: bytes) -> int:
    """The checksum over everything up to and including this blob."""
    return crc32(blob, checksum)


def payload_columns(blob: bytes, width: int) -> list[Sequence[object]]:
    """The payloads of a blob as columns, where all are tuples of this width: no row is built.

    Raises MalformedMessage if they are not.
    """
    parts = unpack(blob)
    if not isinstance(parts, tuple) or len(parts) != 3:
        raise MalformedMessage("not a blob of outputs")
    count, mask, cols = checked_columns(parts[2])
    if mask == PLAIN:
        rows = decode_rows((count, mask, cols))
        if not all(isinstance(row, tuple) and len(row) == width for row in rows):
            raise MalformedMessage(f"payloads are not tuples of {width}")
        cols = list(zip(*rows, strict=True))
        mask = 0
    if len(cols) != width:
        raise MalformedMessage(f"payloads are not tuples of {width}")
    return [
        [column] * count if mask >> i & 1 else column  # type: ignore[misc]
        for i, column in enumerate(cols)
    ]
