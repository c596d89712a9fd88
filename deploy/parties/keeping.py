"""What brings records to a source and has its log written: one group after the other."""

from __future__ import annotations

from collections.abc import Sequence

from driftline.engine.errors import DriftlineError
from driftline.engine.sources.logs.inputlog import WriteGroup
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.wire.party import Job, Party

WINDOW = 4096
"""Records in memory that are not read or not stored yet, at most."""

WINDOW_BYTES = 1 << 26
"""Their size, at most, but for the last one."""


class Keeping(Party):
    """Base of those that bring records."""

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
        """Whether more records may come."""
        source = self.source
        return source.waiting < self.window and source.waiting_bytes < self.window_bytes

    def turn(self) -> bool:
        group = self.source.group()
        if group is not None:
            self.jobs.append(group)
        return False

    def done(self, job: Job, result: object) -> None:
        """A group was written. Raises what kept it from being written.

        After a failed fsync nobody knows what the disk has: the process must end, and read it.
        """
        if isinstance(result, DriftlineError):
            raise result
        assert isinstance(job, WriteGroup)
        self.changelog(self.source.written(job, bool(result)))

    def close(self) -> None:
        """Release what records come by."""

    def kept(self, producers: Sequence[str]) -> None:
        """Records of these producers are in the log."""
