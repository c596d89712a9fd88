"""Elements on their way out of a node's segments, and into others.

What a segment makes is packed where it ends, block by block (`engine.order.ends`). What it has made
for a port on a node becomes one frame: the elements of all blocks worked off together, tracked
under the smallest time among them. (The smallest tracking time of those blocks may be smaller, as
that of a late element that takes others back; it would hold everything up while the frame has to
wait.) What does not leave the node is packed all the same: functions see the same types wherever
their input came from.
"""

from __future__ import annotations

from collections.abc import Iterator

from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Block, Piece
from driftline.deploy.work.tracking import Cells, Intervals
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire import runs
from driftline.engine.wire.codec import Columns, pack_rows
from driftline.engine.wire.messages import Frame, columns


class Leaving:
    """What the segments of a node have made and not let go yet."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._pieces: dict[tuple[int, int, int], list[Piece]] = {}
        """(feeder, port, node) -> what leaves there"""

    def pack(self, feeder: int) -> None:
        """Pack what a segment has made, as far as it is not yet."""
        for port, outbounds in self._assembly.leaving[feeder]:
            for node, outbound in enumerate(outbounds):
                for (labels, values, signs), packed in outbound.take():
                    piece = Piece(labels, packed or pack_rows(values), signs)
                    self._pieces.setdefault((feeder, port, node), []).append(piece)

    def take(self, feeder: int) -> Iterator[tuple[int, int, int, list[Piece]]]:
        """(port, node, tracking time, pieces) of what a segment has made."""
        self.pack(feeder)
        for key in [key for key in self._pieces if key[0] == feeder]:
            pieces = self._pieces.pop(key)
            yield *key[1:], min(min(runs.times(piece.labels)) for piece in pieces), pieces


Made = tuple[int, int, int, int, list[Piece]]
"""(feeder, port, tracking time, id, pieces) of a frame."""


def to_frame(made: Made, cells: Cells = (), covered: Intervals = ()) -> Frame:
    """The frame for another node, perhaps with an acknowledgement."""
    feeder, port, time, id, pieces = made
    encoded = tuple(
        (runs.to_columns(piece.labels), piece.packed(), tuple(piece.signs or ()))
        for piece in pieces
    )
    return Frame(feeder, port, time, id, encoded, (), cells, covered)


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


def _arrived_piece(labels: Columns, payloads: bytes, signs: tuple[int, ...]) -> Piece:
    found = runs.from_columns_of_labels(columns(labels))
    if not found or (signs and len(signs) != len(found)):
        raise MalformedMessage("a frame with columns of different lengths")
    if not isinstance(payloads, bytes):
        raise MalformedMessage("payloads that are not packed")
    if signs and set(map(type, signs)) != {int}:
        raise MalformedMessage("signs that are none")
    return Piece(found, payloads, list(signs) or None)
