"""Receivers: the parties that hand records to a received source, and have its input log written.

Takes records (from clients, in the subclasses). Gives `WriteGroup` jobs, one group of records after
the other. Invariant: a record counts as stored only once its group is durable. A group that could
not be written may have been written all the same: the next try says that it is one, and the log
looks first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from driftline.connectors.logs.inputlog import WriteGroup
from driftline.connectors.logs.received import ReceivedSource
from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.wire.party import Job, Party

WINDOW = 4096
"""Records in memory, not yet read or not yet stored, at most."""

WINDOW_BYTES = 1 << 26
"""Bytes of these records, at most; the last record may exceed it."""

AGAIN_S = 1.0
"""Seconds from a group that could not be written to the next try."""


class Receiver(Party):
    """Base of the intake of producers and of the intake of a pipe."""

    def __init__(
        self,
        source: ReceivedSource,
        *,
        name: str,
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        super().__init__(name)
        self.source = source
        self.window = window
        self.window_bytes = window_bytes
        self._again_at = inf
        """When the group whose writing has failed is written again (seconds, monotonic)."""

    def room(self) -> bool:
        """Whether the source takes more records now."""
        source = self.source
        has_room = source.waiting < self.window and source.waiting_bytes < self.window_bytes
        return has_room and not source.stopped

    def tick(self, now: float) -> float:
        if now >= self._again_at:
            self._again_at = inf
            self.jobs.append(self.source.group_again())
        return min(self._again_at, super().tick(now))

    def turn(self) -> bool:
        group = self.source.group()
        if group is not None:
            self.jobs.append(group)
        return False

    def done(self, job: Job, result: object) -> None:
        """A group of records was written, or `result` is the error. Raises errors that last.

        While the disk is full, say, the group is tried again: records wait, then producers do.
        """
        self.note(job, result)
        self.source.obstacle = self.obstacle
        if isinstance(result, Unavailable):
            self._again_at = self.now + AGAIN_S
            self.tick_by = min(self.tick_by, self._again_at)
            return
        if isinstance(result, DriftlineError):
            raise result
        assert isinstance(job, WriteGroup)
        self.stored(self.source.written(job))

    def close(self) -> None:
        """Release the socket or file that records come from."""

    def stored(self, producers: Sequence[str]) -> None:
        """Records of these producers are in the log."""
