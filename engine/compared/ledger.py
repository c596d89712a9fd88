"""The ledger of a node under strong productions: what it has had, what it may have to send again.

It is managed state like that of an operator: a change leaves a row, a production makes its rows
durable together with those of the operators, and what was removed is let go when parts of the
store are merged. So a production writes what has changed, however much is kept.

Invariants: what has been worked off is known by its id (a frame of a node), by its time (a record
of a front, which come in order) or by being older than what is processed everywhere; a frame is
kept until its time is, outputs until the consumer has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from driftline.engine.errors import MalformedMessage
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import Change, MapState, States, StateTable
from driftline.engine.wire.messages import Frame, Header, decode, encode

LEDGER = "(ledger)"
"""What stands in the place of the operator's name in its rows."""

_PROCESSED = -1
"""Among the fronts' numbers: everything below this time has been worked off, everywhere."""

_HEADER = Header("", 0, 0)

Outputs = tuple[int, tuple[bytes, ...]]
"""The smallest time of outputs, and their blobs."""


class Ledger:
    """What a node has had of others, and what it has made for them."""

    def __init__(self) -> None:
        undo_log: list[Change] = []
        self._next = MapState[int, int]("next").fresh(None, undo_log)
        """Front -> the record to be worked off next has at least this time."""
        self._received = MapState[int, int]("received").fresh(None, undo_log)
        """Id -> time, of the frames of nodes that have been worked off."""
        self._sent = MapState[int, tuple[int, str, bytes]]("sent").fresh(None, undo_log)
        """Id -> (time, receiver, frame)"""
        self._outputs = MapState[int, Outputs]("outputs").fresh(None, undo_log)
        """Number of a production -> what it has for the consumer."""
        states = States((self._next, self._received, self._sent, self._outputs))
        self.table = StateTable(states, undo_log)
        self.table[None] = states
        self.changelog = Changelog(LEDGER, states)
        self._times: list[tuple[int, int]] = []
        """A heap of (time, id) of all frames received and sent."""

    # What has come.

    def next_of(self, front: int) -> int:
        """Records of a front below this time have been worked off."""
        return max(self._next.get(front, 0), self._next.get(_PROCESSED, 0))

    def take_record(self, front: int, time: int) -> None:
        """All records of a front up to a time have been worked off."""
        self._next[front] = time + 1

    def has_had(self, time: int, id: int) -> bool:
        """Whether a node's frame has been worked off."""
        return id in self._received or time < self._next.get(_PROCESSED, 0)

    def take_frame(self, time: int, id: int) -> None:
        """A node's frame has been worked off."""
        self._received[id] = time
        heappush(self._times, (time, id))

    # What leaves.

    def keep_frame(self, to: str, frame: Frame) -> None:
        """Keep a frame, to be sent again. Raises PayloadError if it cannot be encoded."""
        self._sent[frame.id] = frame.time, to, encode(_HEADER, frame)
        heappush(self._times, (frame.time, frame.id))

    def keep_outputs(self, production: int, outputs: Outputs) -> None:
        """Keep the outputs of a production."""
        self._outputs[production] = outputs

    @property
    def frames(self) -> list[tuple[str, Frame]]:
        """(receiver, frame) of all frames that are kept."""
        found = []
        for _, to, data in self._sent.values():
            _, frame = decode(data)
            if not isinstance(frame, Frame):
                raise MalformedMessage(f"a {type(frame).__name__} among the frames of the ledger")
            found.append((to, frame))
        return found

    @property
    def outputs(self) -> dict[int, Outputs]:
        """Production -> outputs, of all that are kept, in order."""
        return dict(sorted(self._outputs.items()))

    # What nobody needs any more.

    def forget_outputs(self, productions: Iterable[int]) -> None:
        """The consumer has the outputs of these productions."""
        for number in productions:
            del self._outputs[number]

    def forget(self, processed: int) -> None:
        """Everything below a time has been worked off, durably, wherever it was sent to."""
        if processed <= self._next.get(_PROCESSED, 0):
            return
        self._next[_PROCESSED] = processed
        while self._times and self._times[0][0] < processed:
            _, id = heappop(self._times)
            for kept in (self._received, self._sent):
                if id in kept:
                    del kept[id]

    # On the disk.

    def keep_changes(self) -> None:
        """Keep what has changed for the next part of the store."""
        self.changelog.keep(self.table.undo_log)
        self.table.undo_log.clear()

    def loaded(self) -> None:
        """The rows have been read back."""
        self._times = [(time, id) for id, time in self._received.items()]
        self._times += [(time, id) for id, (time, _, _) in self._sent.items()]
        heapify(self._times)
