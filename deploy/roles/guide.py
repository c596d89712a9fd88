"""The guide: sends the master's address to the members on its host, and asks fronts to drain.

Members start without the address of a master. They send `Hello` to the guide, which answers with
the master's address (`MasterAt`). It sends the address again after every change and every second,
since a message may be lost. The guide finds the leader in the queue of masters, and may see a
change late. This is harmless: a member obeys a master because of its epoch, not its address.

Takes `Hello` (members), results of `FindLeader`, queue changes, and the request to drain the flow
(`draining`). Emits `FindLeader`, `MasterAt` (members, and a status poller that its owner adds to
`addresses`) and `AskDrain` (fronts).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import ClassVar

from driftline.engine.errors import Unavailable
from driftline.engine.wire.kinds import AGENT
from driftline.engine.wire.messages import AskDrain, Hello, MasterAt, Message
from driftline.engine.wire.role import IOJob, Role

REPEAT_EVERY_S = 1.0
"""Interval of repeated messages, and pause before a failed look-up is retried, in seconds."""


class FindLeader(IOJob, frozen=True):
    """Job that looks up the first master in the queue. Result: (process, address); "" for none."""

    what: ClassVar[str] = "find the master"


class Guide(Role):
    """Guide of one host."""

    def __init__(self) -> None:
        super().__init__(AGENT)
        self.leader = "", ""
        """Process and address of the leading master; empty if unknown."""
        self.draining = False
        """Whether the flow is to drain and end."""
        self._job: FindLeader | None = None
        """The look-up in progress."""
        self._next_check_at = -inf
        """When to look up the leader next (seconds, monotonic); inf: after the next change of the
        queue."""
        self._repeat_at = 0.0
        """When to repeat messages next (seconds, monotonic)."""

    def on_queue_changed(self) -> None:
        """Look up the leader: the queue of masters changed, or the registry is reachable again."""
        self._next_check_at = -inf
        self.tick_by = self.now

    def retain_members(self, names: Iterable[str]) -> None:
        """Forget all members except these: the forgotten ones will not start again."""
        for name in self.addresses.keys() - set(names):
            del self.addresses[name]

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Hello):
            self.addresses[sender] = message.address
            self._send_address([sender])

    def channel_lost(self, sender: str) -> None:
        """Do nothing: members repeat the only message that the guide handles, `Hello`."""

    def on_job_done(self, job: IOJob, result: object) -> None:
        if job is not self._job:
            return
        self._job = None
        self.tick_by = self.now  # the queue may have changed again during the job
        self.update_obstacle(job, result)
        if isinstance(result, Unavailable):
            self._next_check_at = self.now + REPEAT_EVERY_S
        elif isinstance(result, tuple) and result != self.leader:
            self.leader = result
            self._send_address(self.addresses)

    def tick(self, now: float) -> float:
        if now >= self._next_check_at and self._job is None:
            self._next_check_at = inf
            self._job = FindLeader()
            self.jobs.append(self._job)
        if now >= self._repeat_at:
            self._repeat_at = now + REPEAT_EVERY_S
            self._send_address(self.addresses)
        if self._job is not None:
            return self._repeat_at
        return min(self._repeat_at, max(now, self._next_check_at))

    def _send_address(self, names: Iterable[str]) -> None:
        """Send these members the master's address, if known; if `draining`, ask fronts to drain."""
        _, address = self.leader
        if address:
            for name in names:
                self.send(name, MasterAt(address))
        if self.draining:
            for name in names:
                if name.startswith("front-"):
                    self.send(name, AskDrain())
