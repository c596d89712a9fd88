"""The brake: a node begins no blocks while its consumer, or a snapshot, is slow.

An operator whose outputs are not taken has to stop, or its memory fills (Flink does the same with
its output buffers). While more than `WAITING_BYTES` of released outputs wait at the barrier for the
consumer, the node applies no elements. So the processed frontier stands still, or the delivered one
does, the windows of the fronts fill, and the sources are held. Acknowledgements, snapshots and
commits go on. The same holds while as many bytes of changes, and of outputs of an open epoch, wait
for the next snapshot, and that waits for no block: it is under way, or can begin at once. From half
of them on the node asks for a snapshot before it is due.

Why no parties wait for each other in a circle: released outputs wait for nothing but the consumer,
in every policy, and neither a consumer nor a disk waits for a member of the run.

- none, at-least-once: outputs are released as soon as they are made.
- exactly-once: what is released is final. Outputs that are not, wait for other nodes, and are not
  counted. Elements that a buffering gate holds are released in spite of the brake.
- two-phase: what is released is committed. A marker waits behind the frames before it, and its
  epoch for the marker: the epoch takes longer, but no output that is counted waits for it. An open
  epoch counts only while the snapshot of the epoch before waits for disks and consumers: every port
  of the node has ended that epoch, so its markers, and the frames before them, have left. If it is
  given up, the marker of the next epoch says so, and the node goes on.
- strong productions: what is released is durable. A production ends between two blocks, so the
  rest of a block, and the production with it, may wait; what is counted is of earlier ones. Changes
  wait for a production, and are not counted.
- Changes in label order are of elements that are delivered, and any snapshot may take them.

Takes: the bytes that wait, and the time. Gives: whether the node may begin blocks. It goes on once
the consumer has all but half of the bytes, so that it does not stop and go with each bundle.
"""

from __future__ import annotations

from math import inf

from driftline.engine.events import about, log
from driftline.engine.meters import Stopwatch

WAITING_BYTES = 1 << 25
"""Bytes that may wait for the consumer, or for a snapshot, before the node stops."""

TELL_EVERY_S = 10.0
"""The brake is told of at most this often."""


class Brake:
    """The brake of one node; `name`: of the node, for people."""

    def __init__(self, name: str, waiting_bytes: int = WAITING_BYTES) -> None:
        self.on = False
        """Whether the node stands still, as of the last `look`."""
        self.held = Stopwatch()
        """For how long it was on."""
        self.waiting_bytes = waiting_bytes
        self._name = name
        self._told_at = -inf
        self._told = False

    def look(self, waiting: int, unsaved: int, now: float) -> bool:
        """Returns whether the node may not begin blocks.

        `waiting`: bytes of outputs that wait for the consumer; `unsaved`: bytes that wait for a
        snapshot which waits for no block.
        """
        most = self.waiting_bytes // 2 if self.on else self.waiting_bytes
        before, self.on = self.on, waiting > most or unsaved > self.waiting_bytes
        self.held.look(self.on, now)
        if self.on and not before:
            self._told = now >= self._told_at + TELL_EVERY_S
            if self._told:
                self._told_at = now
                log.warning(
                    "%s holds its input back: %s",
                    *(self._name, self._why(waiting, unsaved)),
                    extra=about("held-back", name=self._name, waiting=waiting, unsaved=unsaved),
                )
        elif before and not self.on and self._told:
            log.info("%s takes input again", self._name, extra=about("goes-on", name=self._name))
        return self.on

    def _why(self, waiting: int, unsaved: int) -> str:
        if waiting:  # a snapshot may wait for the consumer, too
            return f"the consumer is slow, {(waiting + unsaved) / 1e6:.0f} MB wait for it"
        return f"snapshots are slow, {unsaved / 1e6:.0f} MB wait for the next one"
