"""Leadership: which master leads, when it steps down, and how its successor takes over.

Masters queue up, each with its own session of the registry. The first one leads, and each of the
others watches its predecessor. When a session ends, its queue entry disappears, and the next master
moves up (ZooKeeper's documented recipe: no herd, no polling). Inputs: results of `Enlist` and
`FindPredecessor`, the time, and watch notifications. Outputs: these jobs, and whether this master
is the first. Safety does not depend on the queue, whose changes a master may see late: each master
first begins a new epoch (`RegistryWriter`), and members reject masters of earlier epochs.

`StepDown`: a network partition, perhaps in one direction only, may separate the leader's host from
one member. A leader with another master behind it steps down after a timeout: its process ends, is
restarted, and queues up as the last. Without a successor it stays. If the run makes no progress
after a step-down, the next process of this master doubles its timeout, as no master can reach a
dead member.

`Takeover`: a new master continues an incarnation only if every member is in it, and every node has
loaded its state; otherwise a recovery begins. In label order nodes track the overall progress, and
the registry has all decisions; an unfinished snapshot of the old master is abandoned. The steps:
all members have said hello; the registry has the epoch of this master; all have answered `Lead`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import ClassVar

from driftline.coordinator.registry import REGISTRY_RETRY_S
from driftline.engine.errors import Unavailable
from driftline.engine.wire.messages import FollowsMaster, Hello
from driftline.engine.wire.role import DurableJob

LEADER_TIMEOUT_MIN_S = 20.0
"""Minimum timeout of a leader before it steps down. It is longer than the restart of a process that
hangs: 5 s of silence, a kill 10 s later, and a few seconds for the start."""

MEMBER_TIMEOUT_FACTOR = 4
"""The leader also waits for this multiple of the timeout of members."""

LONGEST_S = 320.0
"""Upper bound of the timeout, which doubles with each step-down without progress."""

MEMBER_POLL_S = 5.0
"""How often the leader asks members whether they receive its messages."""

SUCCESSOR_POLL_S = 5.0
"""How often the leader looks for a successor, while it cannot reach members."""


class Enlist(DurableJob, frozen=True):
    """Job: queue up, for as long as the session lasts. Result: None.

    May be repeated: `process`, which is new with each start, queues up once.
    """

    what: ClassVar[str] = "queue up to lead"

    process: str


class FindPredecessor(DurableJob, frozen=True):
    """Job: find and watch the predecessor of `process`. Result: its process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "look who leads"

    process: str


class FindSuccessor(DurableJob, frozen=True):
    """Job: find the successor of `process` in the queue. Result: its process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "look who stands by"

    process: str


class Leadership:
    """Position of one master in the queue."""

    def __init__(self, process: str) -> None:
        self._process = process
        self.predecessor: str | None = None
        """The predecessor's process; "" if this one is the first; None if unknown."""
        self.is_session_lost = False
        """Whether the session has ended, so that this process cannot lead any more."""
        self._job: DurableJob | None = None
        """The last job; None before the first one."""
        self._again_at = -inf
        """When to start `_job`; infinity while it is in progress, or until the queue changes."""

    @property
    def first(self) -> bool:
        """Whether this master leads."""
        return self.predecessor == "" and not self.is_session_lost

    def due(self, now: float) -> list[DurableJob]:
        """Return the job to do now, if there is one."""
        if self.first or self.is_session_lost or now < self._again_at:
            return []
        self._again_at = inf
        self._job = self._job or Enlist(self._process)
        return [self._job]

    @property
    def again_at(self) -> float:
        """When to call `due` (seconds, monotonic); infinity if no job is left."""
        return inf if self.first or self.is_session_lost else self._again_at

    def on_queue_changed(self) -> None:
        """Query the queue again: a watch has fired, or the connection is back."""
        if isinstance(self._job, FindPredecessor):
            self._again_at = -inf

    def on_session_expired(self) -> None:
        """Note that the session has ended."""
        self.is_session_lost = True

    def done(self, job: DurableJob, result: object, now: float) -> None:
        """Process the result of a job; `result` is an exception if it failed."""
        if job is not self._job:
            return
        if isinstance(result, Unavailable):
            self._again_at = min(self._again_at, now + REGISTRY_RETRY_S)
        elif isinstance(result, Exception):
            self.is_session_lost = True
        elif isinstance(job, Enlist):
            self._job = FindPredecessor(self._process)
            self._again_at = -inf
        elif isinstance(result, str):
            self.predecessor = result


def leader_timeout_s(missing_after_s: float, in_vain: int = 0) -> float:
    """Return a leader's timeout after this many step-downs of its process without progress."""
    least = max(LEADER_TIMEOUT_MIN_S, MEMBER_TIMEOUT_FACTOR * missing_after_s)
    return max(least, min(float(least * 2**in_vain), LONGEST_S))


class StepDown:
    """Step-down of one leader. `process`: its name in the queue; `patience_s`: its timeout.

    Inputs: the time, for how long the leader has missed members, results of `FindSuccessor`.
    Outputs: when to ask members whether they receive its messages, the job, and whether to step
    down.
    """

    def __init__(self, process: str, patience_s: float = LEADER_TIMEOUT_MIN_S) -> None:
        self._process = process
        self._patience_s = patience_s
        self._ask_at = -inf
        """When to ask members again."""
        self._next_check_at = -inf
        """When to look for a successor again."""
        self._job: FindSuccessor | None = None
        """The job in progress; None if there is none."""

    def is_probe_due(self, now: float) -> bool:
        """Return whether to ask members now."""
        if now < self._ask_at:
            return False
        self._ask_at = now + MEMBER_POLL_S
        return True

    def due(self, now: float, missed: Mapping[str, float]) -> list[DurableJob]:
        """Return the job to do now, if there is one; `missed`: see `Coordinator.unreachable_s`."""
        if self._job is not None or now < self._next_check_at or not self._is_timed_out(missed):
            return []
        self._next_check_at = now + SUCCESSOR_POLL_S
        self._job = FindSuccessor(self._process)
        return [self._job]

    def done(self, job: DurableJob, result: object, missed: Mapping[str, float]) -> bool:
        """Process the result of a job. Return whether to step down."""
        if job is not self._job:
            return False
        self._job = None
        return isinstance(result, str) and bool(result) and self._is_timed_out(missed)

    def _is_timed_out(self, missed: Mapping[str, float]) -> bool:
        return any(seconds > self._patience_s for seconds in missed.values())


class Takeover:
    """Takeover of an incarnation by one master.

    Inputs: `Hello` and `FollowsMaster` of all members. Outputs: whether the incarnation can
    continue, and what the previous master asked of each node.
    """

    def __init__(self, incarnation: int, nodes: Collection[str], members: Collection[str]) -> None:
        self._incarnation = incarnation
        self._nodes = nodes
        self._members = members
        self._fits: dict[str, bool] = {}
        """Member -> whether it is in the incarnation; a node also has to be ready."""
        self._answers: dict[str, FollowsMaster] = {}
        """Member -> its answer to `Lead`."""

    def hello(self, name: str, message: Hello) -> None:
        """Note that a member is present."""
        ready = bool(message.ready) or name not in self._nodes
        self._fits[name] = message.incarnation == self._incarnation and ready

    def answer(self, name: str, message: FollowsMaster) -> None:
        """Note that a member follows this master."""
        self._answers[name] = message

    @property
    def possible(self) -> bool:
        """Whether all members that have said hello are in the incarnation, and nodes ready."""
        return all(self._fits.values())

    @property
    def missing(self) -> list[str]:
        """The members that have not answered yet."""
        return [name for name in self._members if name not in self._answers]

    @property
    def requested_snapshot(self) -> int:
        """The number of the newest snapshot that a node was asked for."""
        return max(self._answers[name].asked for name in self._nodes)

    @property
    def unanswered_nodes(self) -> set[str]:
        """The nodes that have not answered the newest snapshot they were asked for."""
        answers = self._answers
        return {name for name in self._nodes if answers[name].answered < answers[name].asked}
