"""Encoding of outputs for a consumer: one blob for all outputs of one time.

A frontier is a time, so the outputs of one time always leave together. Therefore the sequence of
blobs does not depend on bundle boundaries. One running checksum over the blobs detects a replay
that produces different outputs. Under a policy without label order, a blob contains the outputs of
one batch.
"""

from collections.abc import Sequence
from zlib import crc32

from msgspec import Struct

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import Label
from driftline.engine.wire import label_columns
from driftline.engine.wire.codec import (
    PLAIN,
    checked_columns,
    decode_rows,
    pack,
    pack_rows,
    unpack,
)
from driftline.engine.wire.label_columns import Labels


class Item(Struct, frozen=True):
    """Output of a flow."""

    label: Label
    """(time of the record, number of the source, *path), see `engine.labels`."""
    sink: int
    """The number of its sink in the flow, from 0; -1 for a dead letter."""
    value: object
    """The payload as decoded from the wire format, in which each sequence is a tuple."""


def item_time(item: Item) -> int:
    """Return the time of the record that an output comes from."""
    return item.label[0]


def to_blob(
    labels: Labels, sinks: int | Sequence[int], values: Sequence[object], packed: bytes = b""
) -> bytes:
    """Encode outputs (at least one) as a blob, in the given order.

    `sinks`: the sink of each output, or one number if all have the same sink. `packed`: the result
    of `pack_rows` for the values, if they are packed already; `values` is then ignored.

    Raises PayloadError.
    """
    if not isinstance(sinks, int) and sinks.count(sinks[0]) == len(sinks):
        sinks = sinks[0]  # a list and a single number must give equal bytes
    return (
        _ARRAY_OF_THREE
        + pack(label_columns.encode_labels(labels))
        + pack(sinks)
        + (packed or pack_rows(values))
    )


_ARRAY_OF_THREE = b"\x93"
"""Header of a msgpack array with three values."""


def from_blob(blob: bytes) -> list[Item]:
    """Decode the result of `to_blob`. Raises MalformedMessage for anything else."""
    parts = unpack(blob)
    if not isinstance(parts, tuple) or len(parts) != 3:
        raise MalformedMessage("not a blob of outputs")
    try:
        labels = decode_rows(parts[0])
        values = decode_rows(parts[2])
        sinks = [parts[1]] * len(labels) if isinstance(parts[1], int) else list(parts[1])
    except TypeError as error:
        raise MalformedMessage(f"not a blob of outputs: {error}") from None
    if not len(labels) == len(sinks) == len(values):
        raise MalformedMessage("a blob with different numbers of labels, sinks and values")
    return [Item(*row) for row in zip(labels, sinks, values, strict=True)]  # type: ignore[arg-type]


def running_checksum(checksum: int, blob: bytes) -> int:
    """Return the checksum over all blobs up to this one; `checksum`: over the earlier blobs."""
    return crc32(blob, checksum)


def payload_columns(blob: bytes, width: int) -> list[Sequence[object]]:
    """Return the payloads of a blob as columns.

    If the blob contains columns, this builds no rows. Raises MalformedMessage if payloads are not
    tuples of `width` values.
    """
    parts = unpack(blob)
    if not isinstance(parts, tuple) or len(parts) != 3:
        raise MalformedMessage("not a blob of outputs")
    count, mask, cols = checked_columns(parts[2])
    if mask == PLAIN:
        rows = decode_rows(parts[2])
        if not all(isinstance(row, tuple) and len(row) == width for row in rows):
            raise MalformedMessage(f"payloads are not tuples of {width} values")
        cols = list(zip(*rows, strict=True))
        mask = 0
    if len(cols) != width:
        raise MalformedMessage(f"payloads are not tuples of {width} values")
    return [
        [column] * count if mask >> i & 1 else column  # type: ignore[misc]
        for i, column in enumerate(cols)
    ]
