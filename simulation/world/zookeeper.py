"""A simulated ZooKeeper: the registry and the queue of masters, with sessions that expire.

It guarantees what ZooKeeper does and no more: writes are atomic and name the previous version; a
session's queue entries disappear when the session expires; a read of the queue may be stale; a
watch fires once, some time after the change, and not while its process is cut off. A process learns
of its expired session only when it can reach ZooKeeper again: until then it may believe that it
leads, and its writes are still accepted if they name the right version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct, field

from driftline.coordinator.leadership import Enlist, FindPredecessor, FindSuccessor
from driftline.coordinator.registry import WriteState
from driftline.deploy.roles.candidate import Candidate, ReadState
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.wire.role import IOJob
from driftline.simulation.world.disks import MasterDisk
from driftline.simulation.world.timeline import Timeline

SESSION_S = 0.15
"""Virtual seconds of silence after which a session expires."""

PING_S = 0.03
"""Interval between checks for silent sessions, in virtual seconds."""

LAG_S = 0.05
"""Maximum delay of a watch, and staleness of a read of the queue, in seconds."""


class ZooKeeperSession(Struct):
    """Session of one process. `is_running`: whether the process lives and is not paused."""

    candidate: Candidate
    is_running: Callable[[], bool]
    heard_at: float
    """When the process was last running and not cut off."""
    cut_until: float = 0.0
    """End of the time during which the process is cut off."""
    is_expired: bool = False
    watching: str = ""
    """The process whose queue entry the session's process watches."""


class ZooKeeper(Struct):
    """The service; `registry`: the stored state of the run."""

    timeline: Timeline
    registry: MasterDisk
    cut_probability: float
    """Probability, per job of a master, that its process is cut off for a while."""
    sessions: dict[str, ZooKeeperSession] = field(default_factory=dict)
    """Process -> its session, also if it has expired."""
    queue: list[str] = field(default_factory=list)
    """Names of the queued processes; the first one leads."""
    _previous_queue: list[str] = field(default_factory=list)
    """The queue before its last change, which a stale read returns."""
    _changed_at: float = 0.0

    def begin(self) -> None:
        """Start to check for silent sessions."""
        self.timeline.after(PING_S, self._check_sessions)

    def connect(self, process: str, candidate: Candidate, is_running: Callable[[], bool]) -> None:
        """Start the session of a process."""
        self.sessions[process] = ZooKeeperSession(candidate, is_running, self.timeline.now)

    def execute_job(self, process: str, job: IOJob) -> object:
        """Execute a job of a process. Raises Unavailable, StateMismatch."""
        session, timeline = self.sessions[process], self.timeline
        if timeline.draw_fault(self.cut_probability, "cut off from ZooKeeper"):
            session.cut_until = timeline.now + timeline.rng.choice((0.05, 0.3, 1.5))
        if self._is_cut(session):
            raise Unavailable("the connection to ZooKeeper is lost")
        if isinstance(job, WriteState):
            return self.registry.execute_job(job)
        if isinstance(job, ReadState):
            return self.registry.read()
        if session.is_expired:
            raise StateMismatch("the session has expired")
        if isinstance(job, Enlist):
            if process not in self.queue:
                self._change_queue([*self.queue, process])
            return None
        if isinstance(job, FindSuccessor):
            successors = self.queue[self.queue.index(process) + 1 :]
            return successors[0] if successors else ""
        assert isinstance(job, FindPredecessor)
        return self._read_queue(process, session)

    def _read_queue(self, process: str, session: ZooKeeperSession) -> str:
        """Return the predecessor of a process, and watch it; "" if the process is the first one."""
        is_stale = self.timeline.now < self._changed_at + LAG_S and self.timeline.rng.random() < 0.5
        queue = self._previous_queue if is_stale and process in self._previous_queue else self.queue
        position = queue.index(process)
        if position == 0:
            return ""
        session.watching = queue[position - 1]
        if session.watching not in self.queue:  # already gone: the watch fires at once
            self._fire_watch(session)
        return queue[position - 1]

    def _is_cut(self, session: ZooKeeperSession) -> bool:
        return self.timeline.now < session.cut_until

    def _change_queue(self, queue: list[str]) -> None:
        self._previous_queue, self.queue, self._changed_at = self.queue, queue, self.timeline.now

    def _check_sessions(self) -> None:
        now = self.timeline.now
        for process, session in list(self.sessions.items()):
            if session.is_running() and not self._is_cut(session):
                session.heard_at = now
                if session.is_expired:
                    session.candidate.on_session_expired()
            elif now - session.heard_at > SESSION_S and not session.is_expired:
                self._expire(process, session)
        self.timeline.after(PING_S, self._check_sessions)

    def _expire(self, process: str, session: ZooKeeperSession) -> None:
        session.is_expired = True
        self.timeline.add_trace(f"the session of {process} expires")
        if session.is_running() or self.timeline.now < session.cut_until:
            self.timeline.counted["session expired"] += 1
        if process not in self.queue:
            return
        self._change_queue([other for other in self.queue if other != process])
        for other in self.sessions.values():
            if other.watching == process:
                self._fire_watch(other)

    def _fire_watch(self, session: ZooKeeperSession) -> None:
        session.watching = ""
        delay_s = self.timeline.rng.random() * LAG_S
        self.timeline.after(delay_s, partial(self._deliver_watch, session))

    def _deliver_watch(self, session: ZooKeeperSession) -> None:
        if self._is_cut(session) or not session.is_running():
            self.timeline.after(LAG_S, partial(self._deliver_watch, session))
        else:
            session.candidate.on_queue_changed()


class ZooKeeperStore:
    """Replacement of a `MasterDisk`: executes a master's jobs in ZooKeeper.

    It has no files, so `open` and `flip_bit` do nothing.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.process = ""
        """The master's running process."""

    def execute_job(self, job: IOJob) -> object:
        return self._zookeeper.execute_job(self.process, job)

    def open(self) -> None:
        pass

    def flip_bit(self, rng: Random) -> str:
        return ""
