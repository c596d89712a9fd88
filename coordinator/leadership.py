"""Leadership: which master decides, when it steps down, and how its successor takes over.

Masters queue up, each with its own session of the registry; the first one leads, and each of the
others watches the one before it. When a session ends, its place is gone, and the next one moves up
(the recipe of ZooKeeper's documentation: no herd, no polling). Takes: results of `Enlist` and
`LookAtQueue`, the time, and that something watched has changed. Gives: these jobs, and whether this
master is the first. Safety does not depend on it: the queue may be seen late, so each master begins
with an epoch of its own (`RegistryWriter`), and nobody obeys an earlier one.

`StepDown`: a hole in the network, perhaps in one direction only, may lie between the leader's host
and that of one member. A leader that has waited in vain for a while, and has another one behind it,
ends; its process is started again, and queues up as the last. With nobody behind, it stays. Each
time that a master steps down, and the run gets no further, its next process has twice the patience,
as no master can reach a dead member.

`Takeover`: a new master goes on with an incarnation only if every member is in it, and every node
has its state; otherwise a recovery begins. Nodes track the progress of all in label order, and the
registry has all decisions; what the old master had collected of a snapshot is given up. The steps:
all members have said hello; the registry has the epoch of this master; all have answered `Lead`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from driftline.coordinator.registry import AGAIN_S
from driftline.engine.errors import Unavailable
from driftline.engine.wire.messages import FollowsMaster, Hello
from driftline.engine.wire.party import DurableJob

PATIENCE_S = 20.0
"""How long a leader waits at least. A process that hangs is silent for 5 s, killed 10 s later, and
back after a few more: such a restart is no reason to step down."""

OF_SILENCES = 4
"""It also waits for so many times the silence after which a member counts as missing."""

LONGEST_S = 320.0
"""The patience of a master that has stepped down in vain doubles up to this."""

ASK_EVERY_S = 5.0
"""How often members are asked whether they hear the leader."""

LOOK_EVERY_S = 5.0
"""How often to look for somebody behind, while members are missed."""


@dataclass(frozen=True, slots=True)
class Enlist(DurableJob):
    """Job: queue up, for as long as the session lasts. Result: None.

    May be repeated: `process`, which is new with each start, queues up once.
    """

    what: ClassVar[str] = "queue up to lead"

    process: str


@dataclass(frozen=True, slots=True)
class LookAtQueue(DurableJob):
    """Job: look who is before `process`, and watch that place. Result: its process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "look who leads"

    process: str


@dataclass(frozen=True, slots=True)
class LookBehind(DurableJob):
    """Job: look who is behind `process` in the queue. Result: the next process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "look who stands by"

    process: str


class Leadership:
    """The place of one master in the queue."""

    def __init__(self, process: str) -> None:
        self._process = process
        self.before: str | None = None
        """The process before this one; "" if this one is the first; None if that is not known."""
        self.lost = False
        """Whether the session has ended: this process cannot lead any more."""
        self._job: DurableJob | None = None
        self._again_at = -inf

    @property
    def first(self) -> bool:
        """Whether this master leads."""
        return self.before == "" and not self.lost

    def due(self, now: float) -> list[DurableJob]:
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

    def done(self, job: DurableJob, result: object, now: float) -> None:
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


def patience_s(missing_after_s: float, in_vain: int = 0) -> float:
    """The patience of a leader whose process has stepped down so often without any progress."""
    least = max(PATIENCE_S, OF_SILENCES * missing_after_s)
    return max(least, min(float(least * 2**in_vain), LONGEST_S))


class StepDown:
    """The patience of one leader, whose place in the queue is that of `process`.

    Takes: the time, for how long the leader has missed members, results of `LookBehind`. Gives:
    when to ask members whether they hear it, the job, and whether to step down.
    """

    def __init__(self, process: str, patience_s: float = PATIENCE_S) -> None:
        self._process = process
        self._patience_s = patience_s
        self._ask_at = -inf
        self._look_at = -inf
        self._job: LookBehind | None = None

    def asks(self, now: float) -> bool:
        """Whether members are to be asked now."""
        if now < self._ask_at:
            return False
        self._ask_at = now + ASK_EVERY_S
        return True

    def due(self, now: float, missed: Mapping[str, float]) -> list[DurableJob]:
        """The job to do now, if there is one; `missed`: see `Coordinator.missed`."""
        if self._job is not None or now < self._look_at or not self._is_over(missed):
            return []
        self._look_at = now + LOOK_EVERY_S
        self._job = LookBehind(self._process)
        return [self._job]

    def done(self, job: DurableJob, result: object, missed: Mapping[str, float]) -> bool:
        """A job was carried out. Returns whether to step down."""
        if job is not self._job:
            return False
        self._job = None
        return isinstance(result, str) and bool(result) and self._is_over(missed)

    def _is_over(self, missed: Mapping[str, float]) -> bool:
        return any(seconds > self._patience_s for seconds in missed.values())


class Takeover:
    """The takeover of an incarnation by one master.

    Takes: `Hello` and `FollowsMaster` of all members. Gives: whether the incarnation can go on, and
    what each node was asked for by the master before.
    """

    def __init__(self, incarnation: int, nodes: Collection[str], members: Collection[str]) -> None:
        self._incarnation = incarnation
        self._nodes = nodes
        self._members = members
        self._fits: dict[str, bool] = {}
        self._answers: dict[str, FollowsMaster] = {}

    def hello(self, name: str, message: Hello) -> None:
        """A member is present."""
        ready = bool(message.ready) or name not in self._nodes
        self._fits[name] = message.incarnation == self._incarnation and ready

    def answer(self, name: str, message: FollowsMaster) -> None:
        """A member knows that this master leads."""
        self._answers[name] = message

    @property
    def possible(self) -> bool:
        """Whether all members that were heard are in the incarnation."""
        return all(self._fits.values())

    @property
    def missing(self) -> list[str]:
        """The members that have not answered yet."""
        return [name for name in self._members if name not in self._answers]

    @property
    def asked(self) -> int:
        """The number of the newest snapshot that a node was asked for."""
        return max(self._answers[name].asked for name in self._nodes)

    @property
    def at_work(self) -> set[str]:
        """The nodes that have not answered the snapshot that they were asked for."""
        answers = self._answers
        return {name for name in self._nodes if answers[name].answered < answers[name].asked}
