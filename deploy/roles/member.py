"""Members: the nodes and fronts of a run.

A member takes `Stop` and `Lead` (master), `MasterAt` (agent) and `AskReport` (status pollers). It
sends `StatusReport`; `FollowsMaster`; `Hello` every 0.2 s (address, process, incarnation,
readiness, obstacle); `Alive` while it works or blocks other members; and its problem, if any. It
repeats the problem with each `Hello`, since an earlier message may be lost or the master may be a
new process. After a `Stop` a member does no work, and sends `Goodbye` instead of `Hello` until its
process exits.
"""

from __future__ import annotations

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.kinds import MASTER
from driftline.engine.wire.messages import (
    Alive,
    AskReport,
    FollowsMaster,
    Goodbye,
    Hello,
    Lead,
    MasterAt,
    Message,
    MessageLost,
    StatusReport,
    Stop,
    encode,
)
from driftline.engine.wire.role import Role

HELLO_EVERY_S = 0.2
"""Interval of `Hello` in seconds."""


class Member(Role):
    """Base of node and front; `process`: id of the process, new with each start."""

    def __init__(self, name: str, process: str, address: str, run: str) -> None:
        super().__init__(name)
        self.process, self.address = process, address
        self.run = run
        """Token of the member's run; a `Stop` of another run is ignored."""
        self.outcome: Stop | None = None
        """The `Stop` that this member received; None before."""
        self.problem: Message | None = None
        """Message that makes the master recover or end the run; None: no problem."""
        self.ready = False
        """Whether the member has its state and all answers that it needs to run."""
        self._next_hello_at = 0.0
        self._steps_reported = 0
        """`steps` in the last `Alive`."""

    @property
    def steps(self) -> int:
        """Number of steps of work. While it grows, the oldest work counts as slow, not as lost."""
        return 0

    @property
    def blocks_others(self) -> bool:
        """Whether other members may wait for this one while it waits for its disk or consumer.

        Meanwhile the master counts no stalled work as lost.
        """
        return False

    @property
    def snapshot_numbers(self) -> tuple[int, int]:
        """Number of the last snapshot that the master requested; of the last one answered."""
        return 0, 0

    @property
    def doing(self) -> str:
        """The current work, for people. Another thread may read it."""
        return "one turn"

    @property
    def state(self) -> str:
        """The current activity, for people."""
        raise NotImplementedError

    def status_figures(self) -> dict[str, int]:
        """Return the figures for a `StatusReport`, by name."""
        raise NotImplementedError

    def status_report(self) -> StatusReport:
        """Return the answer to an `AskReport`."""
        return StatusReport(tuple(self.status_figures().items()), self.state, "", ())

    @property
    def stopped(self) -> bool:
        return self.outcome is not None

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Lead):
            self.follow()
        elif isinstance(message, AskReport):
            self.addresses[sender] = message.address
            self.send(sender, self.status_report())
        elif isinstance(message, MasterAt):
            if self.addresses.get(MASTER) != message.address:
                self.addresses[MASTER] = message.address
                self.hello()
        elif not isinstance(message, Stop):
            raise MalformedMessage(f"{type(message).__name__} is not for {self.name}")
        elif message.run == self.run:
            self.outcome = message
            self.hello()

    def follow(self) -> None:
        """Send a new master this member's incarnation and snapshot numbers."""
        self.send("master", FollowsMaster(self.epoch, self.incarnation, *self.snapshot_numbers))

    def repeat(self) -> None:
        """Repeat what the master and other members need to know; called with each `Hello`.

        If an earlier message was lost, the receiver sees a gap.
        """
        raise NotImplementedError

    def tick(self, now: float) -> float:
        if now >= self._next_hello_at:
            self._next_hello_at = now + HELLO_EVERY_S
            self.hello()
        return self._next_hello_at

    def hello(self) -> None:
        """Send the master this member's state and its problem; without one, call `repeat`."""
        if self.stopped:
            self.send("master", Goodbye(self.process))
            return
        ready = int(self.ready)
        hello = Hello(self.address, self.process, self.incarnation, ready, self.obstacle)
        self.send("master", hello)
        if self.steps != self._steps_reported or self.blocks_others:
            self._steps_reported = self.steps
            self.send("master", Alive(self.process, self.steps, int(self.blocks_others)))
        if self.problem is not None:
            self.send("master", self.problem)
        else:
            self.repeat()

    def make_heartbeats(self, now: float) -> list[tuple[str, bytes]]:
        alive = Alive(self.process, self.steps, 1)
        data = encode((self.name, self.incarnation, self.epoch), alive)
        return [(MASTER, data)]

    def report(self, problem: Message) -> None:
        """Report a problem to the master, again with each `Hello` until the next incarnation."""
        self.problem = problem
        self.send("master", problem)

    def enter_incarnation(self, incarnation: int) -> None:
        super().enter_incarnation(incarnation)
        self.problem = None
        self.obstacles.clear()

    def channel_lost(self, sender: str) -> None:
        self.report(MessageLost(self.incarnation, f"{self.name} misses messages of {sender}"))
