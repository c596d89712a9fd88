"""The brake: a node begins no blocks while its consumer is slow.

An operator whose outputs are not taken has to stop, or its memory fills (Flink does the same with
its output buffers). While more than `WAITING_BYTES` of released outputs wait at the barrier for the
consumer, the node applies no elements. So the processed frontier stands still, or the delivered one
does, the windows of the fronts fill, and the sources are held. Acknowledgements, snapshots and
commits go on.

Why no parties wait for each other in a circle: released outputs wait for nothing but the consumer,
in every policy, and the consumer waits for no member of the run.

- none, at-least-once: outputs are released as soon as they are made.
- exactly-once: what is released is final. Outputs that are not, wait for other nodes, and are not
  counted. Elements that a buffering gate holds are released in spite of the brake.
- two-phase: what is released is committed. A marker waits behind the frames before it, and its
  epoch for the marker: the epoch takes longer, but no output that is counted waits for it.
- strong productions: what is released is durable. A production ends between two blocks, so the
  rest of a block, and the production with it, may wait; what is counted is of earlier ones.

Takes: the bytes that wait, and the time. Gives: whether the node may begin blocks. It goes on once
no more than half of the bytes wait, so that it does not stop and go with each bundle.
"""

from __future__ import annotations

from math import inf

from driftline.engine.wire.party import log

WAITING_BYTES = 1 << 25
"""Bytes of outputs that may wait for the consumer before the node stops."""

TELL_EVERY_S = 10.0
"""The brake is told of at most this often."""


class Brake:
    """The brake of one node; `name`: of the node, for people."""

    def __init__(self, name: str, waiting_bytes: int = WAITING_BYTES) -> None:
        self.on = False
        """Whether the node stands still, as of the last `look`."""
        self._name = name
        self._most = waiting_bytes
        self._told_at = -inf
        self._told = False

    def look(self, waiting: int, now: float) -> bool:
        """Returns whether the node may not begin blocks. `waiting`: bytes of outputs that wait."""
        if not self.on and waiting > self._most:
            self.on = True
            self._told = now >= self._told_at + TELL_EVERY_S
            if self._told:
                self._told_at = now
                megabytes = waiting / 1e6
                log.warning(
                    "%s holds its input back: the consumer is slow, %.0f MB of outputs wait",
                    self._name,
                    megabytes,
                )
        elif self.on and waiting <= self._most // 2:
            self.on = False
            if self._told:
                log.info("%s goes on: the consumer has caught up", self._name)
        return self.on
