"""The candidate: a master that queues for leadership and leads once it is first.

Takes results of the jobs `Enlist`, `FindPredecessor`, `FindSuccessor` and `ReadState`, and from its
driver the events of the registry (queue changed, session expired); once it leads, also the input of
its master. Emits these jobs; once it leads, also the messages and jobs of its master. Invariant:
its master begins with a registry state that was read after the candidate had become first. A
candidate stops leading when its session ends, or when it steps down for the next candidate
(`coordinator.leadership`). In both cases its process exits, and a new process joins the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import ClassVar

from driftline.coordinator.leadership import (
    LEADER_TIMEOUT_MIN_S,
    FindSuccessor,
    Leadership,
    StepDown,
)
from driftline.coordinator.registry import REGISTRY_RETRY_S, ClusterState
from driftline.deploy.roles.master import Master
from driftline.engine.errors import DriftlineError, StateMismatch, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.wire.kinds import MASTER, SenderKey
from driftline.engine.wire.role import IOJob, Role


class ReadState(IOJob, frozen=True):
    """Job that reads the registry. Result: the `ClusterState`, or None if none was written."""

    what: ClassVar[str] = "read the registry"


class Candidate(Role):
    """One of several masters of a flow.

    `process`: id of the process; `make`: builds the master from a registry state (None if there is
    none yet), and raises StateMismatch for the state of another run.
    """

    def __init__(
        self,
        process: str,
        make: Callable[[ClusterState | None], Master],
        patience_s: float = LEADER_TIMEOUT_MIN_S,
    ) -> None:
        """Create a candidate.

        `patience_s`: seconds that a member may be unreachable before the candidate steps down, if
        another master is in the queue behind it.
        """
        super().__init__(MASTER)
        self.leadership = Leadership(process)
        self.stepped_down = False
        """Whether the candidate has stopped leading because members were unreachable."""
        self._step_down = StepDown(process, patience_s)
        self.master: Master | None = None
        """The master; None until the candidate leads."""
        self._process = process
        self._make = make
        self._read_job: ReadState | None = None
        """The last job that reads the registry; None before the first one."""
        self._retry_read_at = inf
        """When to retry a failed read (seconds, monotonic); inf: no retry is due."""

    @property
    def stopped(self) -> bool:
        return self.master is not None and self.master.stopped

    @property
    def ended(self) -> bool:
        return self.master is not None and self.master.ended

    @property
    def broken(self) -> bool:
        """Whether a new process has to replace this one."""
        return self.leadership.is_session_lost or (self.master is not None and self.master.broken)

    def on_queue_changed(self) -> None:
        """React to a change of the queue, or to a registry that is reachable again."""
        self.leadership.on_queue_changed()
        self.tick_by = self.now

    def on_session_expired(self) -> None:
        """Handle the end of the ZooKeeper session."""
        self.leadership.on_session_expired()

    def receive(self, data: bytes, sender_key: SenderKey | None = None) -> None:
        if self.master is not None and not self.stepped_down:
            self.master.now = self.now
            self.master.receive(data, sender_key)
            self._take_outputs_of(self.master)

    def on_job_done(self, job: IOJob, result: object) -> None:
        if job is self._read_job:
            self._on_registry_read(result)
        elif self.stepped_down:
            return
        elif isinstance(job, FindSuccessor):
            self._on_successor_found(job, result)
        elif self.master is not None:
            self.master.on_job_done(job, result)
            self._take_outputs_of(self.master)
        else:
            self.update_obstacle(job, result)
            self.leadership.done(job, result, self.now)
            self._read_registry_if_first()
            self.tick_by = self.now

    def tick(self, now: float) -> float:
        if self.stepped_down:
            return inf
        if self.master is not None:
            self.master.now = now
            if self._step_down.is_probe_due(now):
                self.master.coordinator.probe_members()
            tick_by = self.master.tick(now)
            self._take_outputs_of(self.master)
            self.jobs += self._step_down.due(now, self.master.coordinator.unreachable_s)
            return tick_by
        self.jobs += self.leadership.due(now)
        if now >= self._retry_read_at:
            self._read()
        return min(now + REGISTRY_RETRY_S, self._retry_read_at, max(now, self.leadership.retry_at))

    def turn(self) -> bool:
        if self.master is None or self.stepped_down:
            return False
        self.master.now = self.now
        more = self.master.turn()
        self._take_outputs_of(self.master)
        return more

    def _on_successor_found(self, job: FindSuccessor, result: object) -> None:
        """Step down if another master waits behind this one and members are unreachable.

        A StateMismatch means that the session of this process has ended.
        """
        assert self.master is not None
        self.update_obstacle(job, result)
        if isinstance(result, StateMismatch):
            self.leadership.on_session_expired()
        elif self._step_down.done(job, result, self.master.coordinator.unreachable_s):
            self.stepped_down = True
            self.master.coordinator.step_down()

    def _read_registry_if_first(self) -> None:
        if self.leadership.first and self._read_job is None:
            self._read()

    def _read(self) -> None:
        self._retry_read_at = inf
        self._read_job = ReadState()
        self.jobs.append(self._read_job)

    def _on_registry_read(self, result: object) -> None:
        """Begin to lead with the registry state that was read, or retry later."""
        assert self._read_job is not None
        self.update_obstacle(self._read_job, result)
        if isinstance(result, Unavailable):
            self._retry_read_at = self.now + REGISTRY_RETRY_S
        elif isinstance(result, DriftlineError):
            raise result
        elif isinstance(result, ClusterState) or result is None:
            fields = event_fields("leader", process=self._process)
            log.info("this master is the leader now (id %s)", self._process, extra=fields)
            self.master = self._make(result)
            self.master.addresses.update(self.addresses)
            self.addresses = self.master.addresses

    def _take_outputs_of(self, master: Master) -> None:
        """Move the messages and jobs of the master to this role, for the driver."""
        self.outbox += master.outbox
        self.jobs += master.jobs
        master.outbox.clear()
        master.jobs.clear()
        self.tick_by = min(self.tick_by, master.tick_by)
        master.tick_by = inf
