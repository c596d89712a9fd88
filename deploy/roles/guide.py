"""The guide: tells the members on its host where the master is, wherever that moves, and fronts
when a flow is to end.

Members know no address of a master when they start: they say `Hello` to the guide, and it answers
where the master is (`MasterAt`); it says so again whenever that changes, and every second, as a
message may be lost. Who leads it knows from the queue of masters, which it may see late. So it
decides nothing: a member obeys a master because of its epoch, not because of where it is.

Takes: `Hello` (members), results of `FindLeader`, that the queue has changed, or that the flow is
to end. Gives: `FindLeader`, `MasterAt` to members and to the watch, and `AskDrain` to fronts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from driftline.engine.errors import Unavailable
from driftline.engine.wire.kinds import AGENT
from driftline.engine.wire.messages import AskDrain, Hello, MasterAt, Message
from driftline.engine.wire.party import DurableJob, Role

TELL_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class FindLeader(DurableJob):
    """Job: look which master is the first, and where. Result: (process, address); "" for none."""

    what: ClassVar[str] = "find the master"


class Guide(Role):
    """The guide of one host."""

    def __init__(self) -> None:
        super().__init__(AGENT)
        self.leader = "", ""
        """The process and the address of the master, as far as is known."""
        self.draining = False
        """Whether the flow is to end in good order."""
        self._job: FindLeader | None = None
        self._look_at = -inf
        self._tell_at = 0.0

    def noticed(self) -> None:
        """The queue of masters has changed, or the registry is there again."""
        self._look_at = -inf
        self.tick_by = self.now

    def keep(self, names: Iterable[str]) -> None:
        """Tell nobody any more but these: other members have ended for good."""
        for name in self.addresses.keys() - set(names):
            del self.addresses[name]

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Hello):
            self.addresses[sender] = message.address
            self._tell([sender])

    def channel_lost(self, sender: str) -> None:
        """Do nothing: what is not a `Hello` is for the master."""

    def done(self, job: DurableJob, result: object) -> None:
        if job is not self._job:
            return
        self._job = None
        self.tick_by = self.now  # it may have been noticed meanwhile that there is more to look at
        self.note(job, result)
        if isinstance(result, Unavailable):
            self._look_at = self.now + TELL_EVERY_S
        elif isinstance(result, tuple) and result != self.leader:
            self.leader = result
            self._tell(self.addresses)

    def tick(self, now: float) -> float:
        if now >= self._look_at and self._job is None:
            self._look_at = inf
            self._job = FindLeader()
            self.jobs.append(self._job)
        if now >= self._tell_at:
            self._tell_at = now + TELL_EVERY_S
            self._tell(self.addresses)
        return min(self._tell_at, max(now, self._look_at)) if self._job is None else self._tell_at

    def _tell(self, names: Iterable[str]) -> None:
        _, address = self.leader
        if address:
            for name in names:
                self.send(name, MasterAt(address))
        if self.draining:
            for name in names:
                if name.startswith("front-"):
                    self.send(name, AskDrain())
