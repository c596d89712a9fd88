"""Making way: a leader that does not reach a member leaves the lead to the master behind it.

A hole in the network, perhaps in one direction only, may lie between the leader's host and that of
one member. The run would wait for its end, though the master that stands by may reach everybody.
So a leader that has waited in vain for a while, and has another one behind it, ends; its process is
started again, and queues up as the last. With nobody behind, it stays.

Who is dead is reached by no master, and they would take turns for ever. That disturbs nobody, as a
leader that waits has decided nothing; and each time that a master makes way, and the run gets no
further, its next process has twice the patience.

Takes: the time, for how long the leader has missed members, results of `LookBehind`. Gives: when to
ask members whether they hear it, the job, and whether to make way. Invariant: none that safety
needs; who makes way decides nothing from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from driftline.engine.wire.party import Job

PATIENCE_S = 20.0
"""How long a leader waits at least. A process that hangs is silent for 5 s, killed 10 s later, and
back after a few more: such a restart is no reason to make way."""

OF_SILENCES = 4
"""It also waits for so many times the silence after which a member counts as missing."""

LONGEST_S = 320.0
"""The patience of who has made way in vain doubles up to this."""

ASK_EVERY_S = 5.0
"""How often members are asked whether they hear the leader."""

LOOK_EVERY_S = 5.0
"""How often to look for somebody behind, while members are missed."""


def patience_s(missing_after_s: float, in_vain: int = 0) -> float:
    """The patience of a leader whose process has made way so often without any progress."""
    least = max(PATIENCE_S, OF_SILENCES * missing_after_s)
    return max(least, min(float(least * 2**in_vain), LONGEST_S))


@dataclass(frozen=True, slots=True)
class LookBehind(Job):
    """Job: look who is behind `process` in the queue. Result: the next process; "" for none.

    Raises StateMismatch if `process` itself is not in the queue: its session has ended.
    """

    what: ClassVar[str] = "look who stands by"

    process: str


class MakingWay:
    """The patience of one leader, whose place in the queue is that of `process`."""

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

    def due(self, now: float, missed: Mapping[str, float]) -> list[Job]:
        """The job to do now, if there is one; `missed`: see `Coordinator.missed`."""
        if self._job is not None or now < self._look_at or not self._is_over(missed):
            return []
        self._look_at = now + LOOK_EVERY_S
        self._job = LookBehind(self._process)
        return [self._job]

    def done(self, job: Job, result: object, missed: Mapping[str, float]) -> bool:
        """A job was carried out. Returns whether to make way."""
        if job is not self._job:
            return False
        self._job = None
        return isinstance(result, str) and bool(result) and self._is_over(missed)

    def _is_over(self, missed: Mapping[str, float]) -> bool:
        return any(seconds > self._patience_s for seconds in missed.values())
