"""Virtual time: the order of events, and the moments of faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from driftline.simulation.world.faults import Crashed, Faults

Event = Callable[[], None]


@dataclass(slots=True)
class Timeline:
    """A clock and the future events; events of the same moment keep the order of scheduling."""

    chance: Random
    faults: Faults
    counted: Counter[str] = field(default_factory=Counter)
    """How often each kind of event happened, for people and for tests of the simulation."""
    trace: Callable[[str], None] | None = None
    """Called with a line for each delivered message, each job and each fault."""
    now: float = 0.0
    """Virtual seconds since the start."""
    over: bool = False
    """Whether `run` is to end."""
    _events: list[tuple[float, int, Event]] = field(default_factory=list)
    _order: int = 0

    def run(self, limit: float) -> bool:
        """Carry out events until one sets `over`. Returns False if `limit` seconds came first."""
        events = self._events
        while not self.over:
            self.now, _, event = heappop(events)
            if self.now > limit:
                return False
            event()
        return True

    def step(self) -> None:
        """Carry out the next event."""
        self.now, _, event = heappop(self._events)
        event()

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()

    def after(self, delay: float, event: Event) -> None:
        """Schedule an event in `delay` seconds."""
        self.at_time(self.now + delay, event)

    def at_time(self, when: float, event: Event) -> None:
        """Schedule an event at the time `when`."""
        self._order += 1
        heappush(self._events, (when, self._order, event))

    def happens(self, probability: float) -> bool:
        """Draw whether a fault happens now."""
        return (
            probability > 0 and self.now < self.faults.until and self.chance.random() < probability
        )

    def fault(self, probability: float, name: str) -> bool:
        """Draw whether a fault happens now; if it does, count it and add it to the trace."""
        if not self.happens(probability):
            return False
        self.counted[name] += 1
        self.tell(name)
        return True

    def failpoint(self, probability: float, where: str) -> None:
        """Mark a place inside a party where its process may die. Raises Crashed if it does."""
        if self.happens(probability):
            raise Crashed(where)

    def tell(self, text: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace(f"{self.now:11.6f}  {text}")
