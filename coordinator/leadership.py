"""Leadership: which master leads, when it steps down, and how its successor takes over.

Masters queue up in ZooKeeper, each with its own session. The first one leads; each other master
watches its predecessor. When a session ends, its queue entry disappears, and the next master
moves up (ZooKeeper's documented recipe: no herd effect, no polling). Inputs of `Leadership`:
results of `Enlist` and `FindPredecessor`, the time, and watch notifications. Outputs: these jobs,
and whether this master is the first. Safety does not depend on the queue, whose changes a master
may see late: each master first begins a new epoch (`RegistryWriter`), and members reject masters of
earlier epochs.

`StepDown`: a network partition, perhaps in one direction only, may separate the leader's host from
one member. A leader with another master behind it steps down after a timeout: its process exits,
and a new process of this master joins the end of the queue. Without a successor the leader stays.
If the run makes no progress between two step-downs of a master, the next process of this master
doubles its timeout: the member may be dead, and then another step-down does not help either.

`Takeover`: a new master continues an incarnation only if every member is in it, and every node has
loaded its state; otherwise a recovery begins. A takeover needs a policy with label order: then the
nodes track the progress of the run, and the registry has all decisions. The new master abandons an
unfinished snapshot of the old one. It has taken over when all members have said hello, the registry
has its epoch, and then all members have answered `Lead`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import ClassVar

from driftline.coordinator.registry import REGISTRY_RETRY_S
from driftline.engine.errors import Unavailable
from driftline.engine.wire.messages import FollowsMaster, Hello
from driftline.engine.wire.role import IOJob

LEADER_TIMEOUT_MIN_S = 20.0
"""Minimum timeout of a leader: how long a member may be unreachable before the leader steps down.

It is longer than the restart of a process that hangs: 5 s of silence, a kill 10 s later, and a few
seconds for the start."""

MEMBER_TIMEOUT_FACTOR = 4
"""The timeout of a leader is at least this multiple of the timeout of members."""

LEADER_TIMEOUT_MAX_S = 320.0
"""Upper bound of the timeout, which doubles with each step-down without progress; a larger minimum
takes precedence."""

MEMBER_POLL_S = 5.0
"""Seconds between two `Lead` messages that check whether members receive the leader's messages."""

SUCCESSOR_POLL_S = 5.0
"""Seconds between two searches for a successor, while the leader cannot reach a member."""


class Enlist(IOJob, frozen=True):
    """Job: queue up, for as long as the session lasts. Result: None.

    `process`: token of the master's process, new at each start. The job may be repeated: a process
    has only one place in the queue.
    """

    what: ClassVar[str] = "queue up to lead"

    process: str


class FindPredecessor(IOJob, frozen=True):
    """Job: find and watch the predecessor of `process`. Result: its process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "find the leading master"

    process: str


class FindSuccessor(IOJob, frozen=True):
    """Job: find the successor of `process` in the queue. Result: its process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "find the next master"

    process: str


class Leadership:
    """Position of one master in the queue."""

    def __init__(self, process: str) -> None:
        self._process = process
        self.predecessor: str | None = None
        """The predecessor's process; "" if this one is the first; None if unknown."""
        self.is_session_lost = False
        """Whether the session has ended, so that this process cannot lead any more."""
        self._job: IOJob | None = None
        """The last job; None before the first one."""
        self._retry_at = -inf
        """When to start `_job` (seconds, monotonic); infinity while it is in progress, or until the
        queue changes."""

    @property
    def first(self) -> bool:
        """Whether this master is the first in the queue, and so leads."""
        return self.predecessor == "" and not self.is_session_lost

    def due(self, now: float) -> list[IOJob]:
        """Return the job to do now, if there is one."""
        if self.first or self.is_session_lost or now < self._retry_at:
            return []
        self._retry_at = inf
        self._job = self._job or Enlist(self._process)
        return [self._job]

    @property
    def retry_at(self) -> float:
        """When to call `due` (seconds, monotonic); infinity while no job is due at a known time."""
        return inf if self.first or self.is_session_lost else self._retry_at

    def on_queue_changed(self) -> None:
        """Query the queue again: a watch has fired, or the connection is back."""
        if isinstance(self._job, FindPredecessor):
            self._retry_at = -inf

    def on_session_expired(self) -> None:
        """Note that the session has ended."""
        self.is_session_lost = True

    def done(self, job: IOJob, result: object, now: float) -> None:
        """Process the result of a job; `result` is an exception if it failed."""
        if job is not self._job:
            return
        if isinstance(result, Unavailable):
            self._retry_at = min(self._retry_at, now + REGISTRY_RETRY_S)
        elif isinstance(result, Exception):
            self.is_session_lost = True
        elif isinstance(job, Enlist):
            self._job = FindPredecessor(self._process)
            self._retry_at = -inf
        elif isinstance(result, str):
            self.predecessor = result


def leader_timeout_s(missing_after_s: float, futile_step_downs: int = 0) -> float:
    """Return a leader's timeout, in seconds.

    `futile_step_downs`: number of the last step-downs in a row of this master, each without
    progress of the run since the one before.
    """
    minimum_s = max(LEADER_TIMEOUT_MIN_S, MEMBER_TIMEOUT_FACTOR * missing_after_s)
    return max(minimum_s, min(float(minimum_s * 2**futile_step_downs), LEADER_TIMEOUT_MAX_S))


class StepDown:
    """Step-down of one leader. `process`: its name in the queue; `patience_s`: seconds for
    which a member may be unreachable.

    Inputs: the time, for how long members have been unreachable, results of `FindSuccessor`.
    Outputs: when to probe members with `Lead`, the job, and whether to step down.
    """

    def __init__(self, process: str, patience_s: float = LEADER_TIMEOUT_MIN_S) -> None:
        self._process = process
        self._timeout_s = patience_s
        self._next_probe_at = -inf
        """When to probe members again."""
        self._next_check_at = -inf
        """When to look for a successor again."""
        self._job: FindSuccessor | None = None
        """The job in progress; None if there is none."""

    def is_probe_due(self, now: float) -> bool:
        """Return whether to probe members now; if so, schedule the next probe."""
        if now < self._next_probe_at:
            return False
        self._next_probe_at = now + MEMBER_POLL_S
        return True

    def due(self, now: float, unreachable_s: Mapping[str, float]) -> list[IOJob]:
        """Return the job to do now, if there is one.

        `unreachable_s`: see `Coordinator.unreachable_s`.
        """
        if self._job is not None or now < self._next_check_at:
            return []
        if not self._is_timed_out(unreachable_s):
            return []
        self._next_check_at = now + SUCCESSOR_POLL_S
        self._job = FindSuccessor(self._process)
        return [self._job]

    def done(self, job: IOJob, result: object, unreachable_s: Mapping[str, float]) -> bool:
        """Process the result of a job. Return whether to step down."""
        if job is not self._job:
            return False
        self._job = None
        return isinstance(result, str) and bool(result) and self._is_timed_out(unreachable_s)

    def _is_timed_out(self, unreachable_s: Mapping[str, float]) -> bool:
        return any(seconds > self._timeout_s for seconds in unreachable_s.values())


class Takeover:
    """Takeover of an incarnation by one master.

    Inputs: `Hello` and `FollowsMaster` of all members. Outputs: whether the incarnation can
    continue, the newest snapshot that the previous master requested, and the nodes that have not
    answered it.
    """

    def __init__(self, incarnation: int, nodes: Collection[str], members: Collection[str]) -> None:
        self._incarnation = incarnation
        self._nodes = nodes
        self._members = members
        self._can_continue: dict[str, bool] = {}
        """Member -> whether it is in the incarnation; a node also has to be ready."""
        self._answers: dict[str, FollowsMaster] = {}
        """Member -> its answer to `Lead`."""

    def hello(self, name: str, message: Hello) -> None:
        """Note that a member is present, and whether it can continue the incarnation."""
        ready = bool(message.ready) or name not in self._nodes
        self._can_continue[name] = message.incarnation == self._incarnation and ready

    def answer(self, name: str, message: FollowsMaster) -> None:
        """Note that a member follows this master."""
        self._answers[name] = message

    @property
    def is_possible(self) -> bool:
        """Whether all members that have said hello are in the incarnation, and the nodes ready."""
        return all(self._can_continue.values())

    @property
    def missing(self) -> list[str]:
        """The members that have not answered `Lead` yet."""
        return [name for name in self._members if name not in self._answers]

    @property
    def requested_snapshot(self) -> int:
        """The number of the newest snapshot that the previous master requested.

        Precondition: all nodes have answered `Lead`.
        """
        return max(self._answers[name].asked for name in self._nodes)

    @property
    def unanswered_nodes(self) -> set[str]:
        """The nodes that have not answered the last `Prepare` that they received.

        Precondition: all nodes have answered `Lead`.
        """
        answers = self._answers
        return {name for name in self._nodes if answers[name].answered < answers[name].asked}
