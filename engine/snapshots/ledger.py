"""Ledger of a node under strong productions: the frames that it has processed and sent.

A *production* is a snapshot of one node: the results of its turns since the previous production. A
frame or output leaves the node only when the production that contains it is durable (MillWheel,
section 6.1).

Inputs: each processed record and frame, each frame and output that the node made, the productions
whose outputs the consumer has stored, and the processed frontier. Outputs: whether a frame or
record was processed before, and which frames and outputs to resend after a failure.
Invariants: a processed record is recognised by its time, as fronts send in order; a processed frame
by its id, or because its time is processed everywhere. A sent frame is kept until its time is
processed everywhere, an output until the consumer has stored it.

The ledger is managed state like that of an operator: each change adds a row, and a production
writes these rows together with those of the operators. So its cost does not depend on the size of
the ledger. Removed entries leave the disk when parts of the store are merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import INFINITY
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import MapState, UndoLog
from driftline.engine.state.table import States, StateTable
from driftline.engine.wire.messages import Frame, MessageHeader, decode, encode

LEDGER = "(ledger)"
"""Operator name in rows of the ledger."""

_PROCESSED = -1
"""Key in `Ledger._processed_below` for the processed frontier; other keys are fronts."""

_HEADER = MessageHeader("", 0, 0)

Outputs = tuple[int, tuple[bytes, ...]]
"""(smallest time of the outputs, their blobs)."""


class Ledger:
    """Frames and records that a node processed, and frames and outputs that it made."""

    def __init__(self) -> None:
        undo_log: UndoLog = []
        self._processed_below = MapState[int, int]("next").for_key(None, undo_log)
        """Front -> time below which this node has processed all records of the front. `_PROCESSED`
        -> time below which all nodes have processed everything."""
        self._processed_frames = MapState[int, int]("received").for_key(None, undo_log)
        """Id -> time of each processed frame that came from a node."""
        self._sent = MapState[int, tuple[int, str, bytes]]("sent").for_key(None, undo_log)
        """Id -> (time, receiver, encoded frame) of each frame that this node made."""
        self._outputs = MapState[int, Outputs]("outputs").for_key(None, undo_log)
        """Number of a production -> its outputs, until the consumer has stored them."""
        states = States((self._processed_below, self._processed_frames, self._sent, self._outputs))
        self.table = StateTable(states, undo_log)
        self.table[None] = states
        self.changelog = Changelog(LEDGER, states)
        self._frame_times: list[tuple[int, int]] = []
        """Heap of (time, id) of all frames in `_processed_frames` and `_sent`."""

    # Processed frames and records.

    def processed_below(self, front: int) -> int:
        """Return the time below which all records of a front are processed."""
        return max(self._processed_below.get(front, 0), self._processed_below.get(_PROCESSED, 0))

    def mark_records_processed(self, front: int, last: int) -> None:
        """Note that all records of a front up to and including the time `last` are processed."""
        self._processed_below[front] = last + 1

    def was_processed(self, time: int, id: int) -> bool:
        """Return whether a frame from a node, with this `Frame.time` and id, was processed."""
        return id in self._processed_frames or time < self._processed_below.get(_PROCESSED, 0)

    def mark_frame_processed(self, time: int, id: int) -> None:
        """Note that a frame from a node, with this `Frame.time` and id, is processed."""
        self._processed_frames[id] = time
        heappush(self._frame_times, (time, id))

    # Frames and outputs that this node made.

    def keep_frame(self, receiver: str, frame: Frame) -> None:
        """Keep a frame made for a node. Raises PayloadError if it cannot be encoded."""
        self._sent[frame.id] = frame.time, receiver, encode(_HEADER, frame)
        heappush(self._frame_times, (frame.time, frame.id))

    def keep_outputs(self, production: int, outputs: Outputs) -> None:
        """Keep the outputs of a production for the consumer."""
        self._outputs[production] = outputs

    @property
    def frames(self) -> list[tuple[str, Frame]]:
        """(receiver, frame) of all kept frames. Raises MalformedMessage."""
        frames = []
        for _, receiver, data in self._sent.values():
            _, frame = decode(data)
            if not isinstance(frame, Frame):
                raise MalformedMessage(
                    f"the ledger contains a {type(frame).__name__} among its frames"
                )
            frames.append((receiver, frame))
        return frames

    @property
    def outputs(self) -> dict[int, Outputs]:
        """Production -> kept outputs; in the order of productions."""
        return dict(sorted(self._outputs.items()))

    # Entries that are no longer needed.

    def forget_outputs(self, productions: Iterable[int]) -> None:
        """Drop the outputs of these productions, because the consumer has stored them."""
        for number in productions:
            del self._outputs[number]

    def forget(self, processed: int) -> None:
        """Drop all frames below the time `processed`, the processed frontier of the run.

        Precondition: all nodes have durably processed everything below this time. INFINITY, at the
        end of a run, drops all frames. The stored frontier stays finite: if the inputs grow, a
        later call of the command has frames with larger times.
        """
        if processed >= INFINITY:
            processed = max(self._frame_times, default=(-1, 0))[0] + 1
        if processed <= self._processed_below.get(_PROCESSED, 0):
            return
        self._processed_below[_PROCESSED] = processed
        while self._frame_times and self._frame_times[0][0] < processed:
            _, id = heappop(self._frame_times)
            for frames in (self._processed_frames, self._sent):
                if id in frames:
                    del frames[id]

    # The disk.

    def keep_changes(self) -> None:
        """Move all changes since the last call to the changelog, for the next part."""
        self.changelog.add_changes(self.table.undo_log)
        self.table.undo_log.clear()

    def rebuild_times(self) -> None:
        """Rebuild the heap of frame times. Call this after restoring the table from a snapshot."""
        self._frame_times = [(time, id) for id, time in self._processed_frames.items()]
        self._frame_times += [(time, id) for id, (time, _, _) in self._sent.items()]
        heapify(self._frame_times)
