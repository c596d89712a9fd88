"""The writes of the registry: one at a time, each tried until it is done.

Takes: the states to be written, the time, results of `WriteState`. Gives: `WriteState` jobs.
Invariants: a state is written only once the state before it is; so a full disk is like a slow one:
the run waits. What a coordinator writes first also begins an epoch (`engine.wire.party`): from then
on no master before it can write, or is obeyed.

A write that failed may have been done all the same. The next try says that it is one
(`WriteState.again`): the registry reads first, and the state counts as written if it is there.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from driftline.coordinator.registry import ClusterState, WriteState
from driftline.engine.errors import Unavailable
from driftline.engine.wire.party import Job

AGAIN_S = 1.0
"""Seconds from a write that failed to the next try."""


class Writing:
    """The writes of one coordinator; `leader`: the process of its master, new with each start."""

    def __init__(self, leader: str) -> None:
        self._leader = leader
        self.again_at = inf
        """When the write that failed last is tried again (seconds, monotonic)."""
        self._job: WriteState | None = None
        self.begun = False
        """Whether the registry has the epoch of this coordinator's master."""

    @property
    def under_way(self) -> bool:
        """Whether a write is not done yet."""
        return self._job is not None

    def begin(self, state: ClusterState) -> WriteState:
        """The job to do now. Precondition: no write is under way."""
        assert self._job is None, "a write names the version before it: that has to be there first"
        if not self.begun:
            state = replace(state, epoch=state.epoch + 1, leader=self._leader)
        self._job = WriteState(state)
        return self._job

    def due(self, now: float) -> list[WriteState]:
        """The job to do again now, if there is one."""
        if self._job is None or now < self.again_at:
            return []
        self.again_at = inf
        self._job = replace(self._job, again=True)
        return [self._job]

    def over(self, job: Job, result: object, now: float) -> bool:
        """A job was carried out. Returns whether the write is over: done, or failed for good."""
        if job is not self._job:
            return False
        if isinstance(result, Unavailable):
            self.again_at = now + AGAIN_S
            return False
        self._job = None
        self.begun |= result is None
        return True
