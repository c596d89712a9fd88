"""The snapshotter: makes a node's parts of snapshots. It takes changes at once, and encodes slowly.

Takes: the moments of snapshots (`Prepare`, the end of an epoch or of a turn), results of writes.
Gives: `StoreSnapshot` jobs, then `Prepared` or `PrepareFailed`. If a write fails, its changes go
into the next part. Invariant: every final change is in exactly one durable part, and parts are
written in order.
"""

from __future__ import annotations

from driftline.deploy.work.assembly import Assembly, Post
from driftline.engine.snapshots.jobs import Capture, StoreSnapshot
from driftline.engine.texts import time_in_words
from driftline.engine.wire.messages import Prepared, PrepareFailed
from driftline.engine.wire.party import Job


class Snapshotter:
    """The parts of one incarnation."""

    def __init__(self, assembly: Assembly, incarnation: int) -> None:
        self._assembly = assembly
        self._incarnation = incarnation
        self._capture: Capture | None = None
        self._number = 0
        self.asked = self.answered = 0
        """The last snapshots that the master has asked for, and that were answered."""
        self._meta = b""
        self._storing: StoreSnapshot | None = None
        self.stored_bytes = self.last_bytes = 0
        """Size of all parts that were written in this incarnation, and of the last one."""
        self._unstored: dict[int, bytes] = {}
        """Key group -> the segment of a part whose write failed."""

    def prepare(self, number: int, time: int) -> Post:
        """The master asks for a part. Returns messages to send: the answer, if it is known now."""
        self.asked = number
        production = self._assembly.durable
        if production is not None:
            self.answered = number
            return [("master", Prepared(number, production))]
        self.begin(number, time)
        return []

    def refuse(self, number: int, time: int) -> Post:
        """The master asks for a part as of a time that has been settled. Returns the answer."""
        self.asked = self.answered = number
        reason = f"the master was silent, and the state from {time_in_words(time)} on is settled"
        return [("master", PrepareFailed(number, reason))]

    def begin(self, number: int, time: int) -> None:
        """Take all changes below a time now: changes settled later are for the next part."""
        assert self._capture is None, "one snapshot at a time"
        self._number = number
        self._meta = self._assembly.meta(time)
        self._capture = self._assembly.capture(time)

    def step(self) -> tuple[bool, StoreSnapshot | None]:
        """Encode a chunk. Returns whether there are more, and the job once there are none."""
        if self._capture is None:
            return False, None
        if self._capture.step():
            return True, None
        if not self._assembly.may_prepare():
            return False, None
        segments = self._capture.segments
        for group, segment in self._unstored.items():
            segments[group] = segment + segments.get(group, b"")
        self._unstored = {}
        self._capture = None
        meta, self._meta = self._meta, b""
        self._storing = StoreSnapshot(self._number, segments, meta, self._incarnation)
        return False, self._storing

    @property
    def unstored_bytes(self) -> int:
        """Bytes of the parts whose write failed; the next part has them."""
        return sum(map(len, self._unstored.values()))

    def stored(self, job: Job, result: object) -> Prepared | PrepareFailed | None:
        """A job is done. Returns the answer to the master; None if it was another job."""
        if not isinstance(job, StoreSnapshot) or job is not self._storing:
            return None
        self._storing = None
        self.answered = job.number
        if isinstance(result, Exception):
            self._unstored = job.segments
            return PrepareFailed(job.number, str(result))
        self.last_bytes = sum(map(len, job.segments.values()))
        self.stored_bytes += self.last_bytes
        return Prepared(job.number, 0)
