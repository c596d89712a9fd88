"""Elements on their way out of a node's chains, and into others.

What a chain makes is packed where it ends, block by block (`engine.order.ends`). What it has made
for a port on a node becomes one frame: the elements of all blocks worked off together, tracked
under the smallest time among them. (The smallest tracking time of those blocks may be smaller, as
that of a late element that takes others back; it would hold everything up while the frame has to
wait.) What does not leave the node is packed all the same: functions see the same types wherever
their input came from.
"""

from __future__ import annotations

from collections.abc import Iterator

from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Batch, Block
from driftline.deploy.work.tracking import Cells, Intervals
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire import label_columns
from driftline.engine.wire.codec import Columns, pack_rows
from driftline.engine.wire.messages import Frame


class Leaving:
    """What the chains of a node have made and not let go yet."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._batches: dict[tuple[int, int, int], list[Batch]] = {}
        """(feeder, port, node) -> what leaves there"""

    def pack(self, feeder: int) -> None:
        """Pack what a chain has made, as far as it is not yet."""
        for port, outbounds in self._assembly.leaving[feeder]:
            for node, outbound in enumerate(outbounds):
                for (labels, values, signs), packed in outbound.take():
                    batch = Batch(labels, packed or pack_rows(values), signs)
                    self._batches.setdefault((feeder, port, node), []).append(batch)

    def take(self, feeder: int) -> Iterator[tuple[int, int, int, list[Batch]]]:
        """(port, node, tracking time, batches) of what a chain has made."""
        self.pack(feeder)
        for key in [key for key in self._batches if key[0] == feeder]:
            batches = self._batches.pop(key)
            yield (
                *key[1:],
                min(min(label_columns.times(batch.labels)) for batch in batches),
                batches,
            )


Made = tuple[int, int, int, int, list[Batch]]
"""(feeder, port, tracking time, id, batches) of a frame."""


def to_frame(made: Made, cells: Cells = (), covered: Intervals = ()) -> Frame:
    """The frame for another node, perhaps with an acknowledgement."""
    feeder, port, time, id, batches = made
    encoded = tuple(
        (label_columns.encode_labels(batch.labels), batch.packed(), tuple(batch.signs or ()))
        for batch in batches
    )
    return Frame(feeder, port, time, id, encoded, (), cells, covered)


def arrived_block(frame: Frame) -> Block:
    """The elements of a frame. Raises MalformedMessage."""
    if not frame.batches:
        raise MalformedMessage("a frame without elements")
    if len(frame.covers) not in (0, 2):
        raise MalformedMessage("a frame that covers what is no interval")
    try:
        batches = [_arrived_batch(*batch) for batch in frame.batches]
        return Block(frame.port, frame.time, frame.id, batches, frame.covers)
    except (TypeError, IndexError) as error:
        raise MalformedMessage(f"elements that are none: {error}") from None


def _arrived_batch(labels: Columns, payloads: bytes, signs: tuple[int, ...]) -> Batch:
    found = label_columns.decode_labels(labels)
    if not found or (signs and len(signs) != len(found)):
        raise MalformedMessage("a frame with columns of different lengths")
    if not isinstance(payloads, bytes):
        raise MalformedMessage("payloads that are not packed")
    if signs and set(map(type, signs)) != {int}:
        raise MalformedMessage("signs that are none")
    return Batch(found, payloads, list(signs) or None)
