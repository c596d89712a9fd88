"""Leaving: outputs of chains become frames, and frames that arrive become blocks.

The end of a chain packs outputs batch by batch (`engine.operators.ends`). All batches that a chain
has made for a port on a node, from all blocks worked off together, become one frame. It is tracked
under the smallest time of its elements. (Not under that of the blocks: a late element of an early
time may make nothing but corrections of later times, and frontiers would wait for them.) Batches
for a port on the same node are packed, too: functions see the same types wherever their input comes
from.

Takes: outputs of chains; frames. Gives: batches for frames; frames; blocks. Invariant: an output is
in exactly one frame.
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
    """The outputs of a node's chains that are in no frame yet."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._batches: dict[tuple[int, int, int], list[Batch]] = {}
        """(feeder, port, node) -> packed batches"""

    def pack(self, feeder: int) -> None:
        """Take the new outputs of a chain, and pack those that are not packed."""
        for port, outbounds in self._assembly.outbounds[feeder]:
            for node, outbound in enumerate(outbounds):
                for (labels, values, signs), packed in outbound.take():
                    batch = Batch(labels, packed or pack_rows(values), signs)
                    self._batches.setdefault((feeder, port, node), []).append(batch)

    def take(self, feeder: int) -> Iterator[tuple[int, int, int, list[Batch]]]:
        """Remove the outputs of a chain: (port, node, tracking time, batches) of each frame."""
        self.pack(feeder)
        for key in [key for key in self._batches if key[0] == feeder]:
            batches = self._batches.pop(key)
            yield (
                *key[1:],
                min(min(label_columns.times(batch.labels)) for batch in batches),
                batches,
            )


UnsentFrame = tuple[int, int, int, int, list[Batch]]
"""(feeder, port, tracking time, id, batches): a frame that has an id and is not encoded."""


def to_frame(unsent: UnsentFrame, cells: Cells = (), covered: Intervals = ()) -> Frame:
    """The frame as a message; `cells`, `covered`: an acknowledgement that travels in it."""
    feeder, port, time, id, batches = unsent
    encoded = tuple(
        (label_columns.encode_labels(batch.labels), batch.packed(), tuple(batch.signs or ()))
        for batch in batches
    )
    return Frame(feeder, port, time, id, encoded, (), cells, covered)


def arrived_block(frame: Frame) -> Block:
    """The block of a frame that has arrived. Raises MalformedMessage."""
    if not frame.batches:
        raise MalformedMessage("a frame without elements")
    if len(frame.covers) not in (0, 2):
        raise MalformedMessage(f"a frame covers {frame.covers}, which is not an interval of times")
    try:
        batches = [_arrived_batch(*batch) for batch in frame.batches]
        return Block(frame.port, frame.time, frame.id, batches, frame.covers)
    except (TypeError, IndexError) as error:
        raise MalformedMessage(f"a frame with elements that cannot be read: {error}") from None


def _arrived_batch(labels: Columns, payloads: bytes, signs: tuple[int, ...]) -> Batch:
    decoded = label_columns.decode_labels(labels)
    if not decoded or (signs and len(signs) != len(decoded)):
        raise MalformedMessage("a frame with columns of different lengths")
    if not isinstance(payloads, bytes):
        raise MalformedMessage("payloads that are not packed")
    if signs and set(map(type, signs)) != {int}:
        raise MalformedMessage("a frame with signs that are not numbers")
    return Batch(decoded, payloads, list(signs) or None)
