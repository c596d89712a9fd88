"""Receivers: the parties that hand records to a received source, and have its input log written.

Takes records (from clients, in the subclasses). Gives `WriteGroup` jobs, one group of records after
the other. Invariant: a record counts as stored only once its group is durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftline.engine.errors import DriftlineError
from driftline.engine.sources.logs.inputlog import WriteGroup
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.wire.party import Job, Party

WINDOW = 4096
"""Records in memory, not yet read or not yet stored, at most."""

WINDOW_BYTES = 1 << 26
"""Bytes of these records, at most; the last record may exceed it."""


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

    def room(self) -> bool:
        """Whether the source takes more records now."""
        source = self.source
        has_room = source.waiting < self.window and source.waiting_bytes < self.window_bytes
        return has_room and not source.stopped

    def turn(self) -> bool:
        group = self.source.group()
        if group is not None:
            self.jobs.append(group)
        return False

    def done(self, job: Job, result: object) -> None:
        """A group of records was written, or `result` is the error. Raises that error.

        After a failed fsync it is unknown what is on the disk: the process has to end, and the next
        one reads the log.
        """
        if isinstance(result, DriftlineError):
            raise result
        assert isinstance(job, WriteGroup)
        self.stored(self.source.written(job, bool(result)))

    def close(self) -> None:
        """Release the socket or file that records come from."""

    def stored(self, producers: Sequence[str]) -> None:
        """Records of these producers are in the log."""
