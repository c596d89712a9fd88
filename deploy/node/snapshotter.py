"""A node's part of snapshots: takes what belongs to one at once, encodes it little by little.

Takes the moments of `Prepare` (or of the end of an epoch, or of a turn); gives `StoreSnapshot` jobs
and, when one is done, `Prepared` or `PrepareFailed`. What could not be stored goes into the next
snapshot.
Invariant: every final change is in exactly one part, and parts are stored in order.
"""

from __future__ import annotations

from driftline.deploy.work.assembly import Assembly, Post
from driftline.engine.snapshots.jobs import Capture, StoreSnapshot
from driftline.engine.wire.messages import Prepared, PrepareFailed
from driftline.engine.wire.party import Job


class Snapshotter:
    """The snapshots of one incarnation."""

    def __init__(self, assembly: Assembly, incarnation: int) -> None:
        self._assembly = assembly
        self._incarnation = incarnation
        self._capture: Capture | None = None
        self._number = 0
        self._meta = b""
        self._storing: StoreSnapshot | None = None
        self._unstored: dict[int, bytes] = {}

    def prepare(self, number: int, time: int) -> Post:
        """The coordinator wants a snapshot. Returns the answer, if there is one at once."""
        production = self._assembly.durable
        if production is not None:
            return [("master", Prepared(number, production))]
        self.begin(number, time)
        return []

    def begin(self, number: int, time: int) -> None:
        """Take the state as of a time, at once: what is settled from now on does not belong."""
        assert self._capture is None, "one snapshot at a time"
        self._number = number
        self._meta = self._assembly.meta(time)
        self._capture = self._assembly.capture(time)

    def step(self) -> tuple[bool, StoreSnapshot | None]:
        """Do a little. Returns whether there is more to do, and the job once all is done."""
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
        self._storing = StoreSnapshot(self._number, segments, self._meta, self._incarnation)
        return False, self._storing

    def stored(self, job: Job, result: object) -> Prepared | PrepareFailed | None:
        """What came of a job; None if it is not of this incarnation."""
        if not isinstance(job, StoreSnapshot) or job is not self._storing:
            return None
        self._storing = None
        if isinstance(result, Exception):
            self._unstored = job.segments
            return PrepareFailed(job.number, str(result))
        return Prepared(job.number, 0)
