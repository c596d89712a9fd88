"""Leadership: which of several masters decides.

Masters queue up, each with its own session of the registry; the first one leads, and each of the
others watches the one before it. When a session ends, its place is gone, and the next one moves up
(the recipe of ZooKeeper's documentation: no herd, no polling).

Takes: results of `Enlist` and `LookAtQueue`, the time, and that something watched has changed.
Gives: these jobs, and whether this master is the first. Invariant: none that safety needs. The
queue may be seen late, and a master that has stood still may take itself for the first; therefore
each begins with an epoch of its own (`writing.py`), and nobody obeys an earlier one. Leadership
only sees to it that there is always one master, and seldom two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from driftline.coordinator.writing import AGAIN_S
from driftline.engine.errors import Unavailable
from driftline.engine.wire.party import Job


@dataclass(frozen=True, slots=True)
class Enlist(Job):
    """Job: queue up, for as long as the session lasts. Result: None.

    May be repeated: `process`, which is new with each start, queues up once.
    """

    what: ClassVar[str] = "queue up to lead"

    process: str


@dataclass(frozen=True, slots=True)
class LookAtQueue(Job):
    """Job: look who is before `process`, and watch that place. Result: its process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "look who leads"

    process: str


class Leadership:
    """The place of one master in the queue."""

    def __init__(self, process: str) -> None:
        self._process = process
        self.before: str | None = None
        """The process before this one; "" if this one is the first; None if that is not known."""
        self.lost = False
        """Whether the session has ended: this process cannot lead any more."""
        self._job: Job | None = None
        self._again_at = -inf

    @property
    def first(self) -> bool:
        """Whether this master leads."""
        return self.before == "" and not self.lost

    def due(self, now: float) -> list[Job]:
        """The job to do now, if there is one."""
        if self.first or self.lost or now < self._again_at:
            return []
        self._again_at = inf
        self._job = self._job or Enlist(self._process)
        return [self._job]

    @property
    def again_at(self) -> float:
        """When `due` wants to be called (seconds, monotonic); never once nothing is left to do."""
        return inf if self.first or self.lost else self._again_at

    def noticed(self) -> None:
        """Something that this process watches has changed, or the connection is back: look."""
        if isinstance(self._job, LookAtQueue):
            self._again_at = -inf

    def expired(self) -> None:
        """The session has ended."""
        self.lost = True

    def done(self, job: Job, result: object, now: float) -> None:
        """A job was carried out; `result` is an exception if it failed."""
        if job is not self._job:
            return
        if isinstance(result, Unavailable):
            self._again_at = min(self._again_at, now + AGAIN_S)
        elif isinstance(result, Exception):
            self.lost = True
        elif isinstance(job, Enlist):
            self._job = LookAtQueue(self._process)
            self._again_at = -inf
        elif isinstance(result, str):
            self.before = result
