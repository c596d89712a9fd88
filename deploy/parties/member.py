"""Members: parties that the master counts on, nodes and fronts.

Takes `Stop`. Gives `Hello` again and again (who, where, in which incarnation, whether ready),
`Alive` where work goes on, and, as often, what the master has to do something about: it may have
been lost, or the master may be a new one. Once it has been told to stop it does nothing any more
but to say `Goodbye` instead, for as long as its process lives.
"""

from __future__ import annotations

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.messages import Alive, Goodbye, Hello, Lost, Message, Stop, encode
from driftline.engine.wire.party import Party

HELLO_EVERY_S = 0.2


class Member(Party):
    """Base of node and front. `process` is new with each start of a process."""

    def __init__(self, name: str, process: str, address: str, run: str) -> None:
        super().__init__(name)
        self.process, self.address = process, address
        self.run = run
        """What it takes part in; that another run is over is none of its business."""
        self.outcome: Stop | None = None
        """How the run ended."""
        self.trouble: Message | None = None
        """What the master has to do something about."""
        self.ready = False
        """Whether it is loaded and has all answers that it needs."""
        self._next_hello = 0.0
        self._steps_told = 0

    @property
    def steps(self) -> int:
        """Steps of work that were done so far: while they move, nothing is lost."""
        return 0

    @property
    def waits_for_disk(self) -> bool:
        """Whether what others wait for is on its way to the disk: that is no idleness."""
        return False

    @property
    def doing(self) -> str:
        """What is being done, for people; another thread may ask."""
        return "one turn"

    @property
    def stopped(self) -> bool:
        return self.outcome is not None

    def handle(self, sender: str, message: Message) -> None:
        if not isinstance(message, Stop):
            raise MalformedMessage(f"{type(message).__name__} is not for {self.name}")
        if message.run == self.run:
            self.outcome = message
            self.hello()

    def repeat(self) -> None:
        """Tell again what the master needs to know. Also when nothing has changed: it shows the
        master whether something was lost."""
        raise NotImplementedError

    def tick(self, now: float) -> float:
        if now >= self._next_hello:
            self._next_hello = now + HELLO_EVERY_S
            self.hello()
        return self._next_hello

    def hello(self) -> None:
        """Tell the master where we stand."""
        if self.stopped:
            self.send("master", Goodbye(self.process))
            return
        self.send("master", Hello(self.address, self.process, self.incarnation, int(self.ready)))
        if self.steps != self._steps_told or self.waits_for_disk:
            self._steps_told = self.steps
            self.send("master", Alive(self.process, self.steps, int(self.waits_for_disk)))
        if self.trouble is not None:
            self.send("master", self.trouble)
        else:
            self.repeat()

    def beat(self, now: float) -> list[tuple[str, bytes]]:
        alive = Alive(self.process, self.steps, 1)
        return [("master", encode((self.name, self.incarnation, 0), alive))]

    def report(self, trouble: Message) -> None:
        """Tell the master, and tell again until there is a new incarnation."""
        self.trouble = trouble
        self.send("master", trouble)

    def enter(self, incarnation: int) -> None:
        super().enter(incarnation)
        self.trouble = None

    def channel_lost(self, sender: str) -> None:
        self.report(Lost(self.incarnation, f"{self.name} misses messages of {sender}"))
