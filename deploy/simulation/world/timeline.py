"""Virtual time: what happens when, and whether a fault happens now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from driftline.deploy.simulation.world.faults import Crashed, Faults

Event = Callable[[], None]


@dataclass(slots=True)
class Timeline:
    """A clock and the events to come; those of the same moment keep their order."""

    chance: Random
    faults: Faults
    counted: Counter[str] = field(default_factory=Counter)
    """What happened how often, for people and for tests of the simulation."""
    trace: Callable[[str], None] | None = None
    """Told every message that is delivered, every job and every fault."""
    now: float = 0.0
    over: bool = False
    """Whether nothing is to happen any more."""
    _events: list[tuple[float, int, Event]] = field(default_factory=list)
    _order: int = 0

    def run(self, limit: float) -> bool:
        """Let events happen until one says `over`. Returns False if the time limit came first."""
        events = self._events
        while not self.over:
            self.now, _, event = heappop(events)
            if self.now > limit:
                return False
            event()
        return True

    def step(self) -> None:
        """Let the next event happen."""
        self.now, _, event = heappop(self._events)
        event()

    def after(self, delay: float, event: Event) -> None:
        """Let something happen later."""
        self.at_time(self.now + delay, event)

    def at_time(self, when: float, event: Event) -> None:
        """Let something happen at a moment."""
        self._order += 1
        heappush(self._events, (when, self._order, event))

    def happens(self, probability: float) -> bool:
        """Whether a fault happens now."""
        return (
            probability > 0 and self.now < self.faults.until and self.chance.random() < probability
        )

    def fault(self, probability: float, what: str) -> bool:
        """Whether a fault happens now; if so, it is counted and told."""
        if not self.happens(probability):
            return False
        self.counted[what] += 1
        self.tell(what)
        return True

    def failpoint(self, probability: float, where: str) -> None:
        """A place inside a party where its process may die. Raises Crashed."""
        if self.happens(probability):
            raise Crashed(where)

    def tell(self, what: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace(f"{self.now:11.6f}  {what}")
