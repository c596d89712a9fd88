"""The simulated network: channels that delay, lose and repeat what processes send each other.

A channel leads from a process to a party. It is FIFO, and other channels may overtake it. A cut
loses what is sent on a channel, or by a process, while it lasts. Of what a process that crashes
has sent, a random tail is lost, or all that is still on its way lingers until its successor is at
work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random

from driftline.deploy.simulation.world.faults import Faults
from driftline.deploy.simulation.world.timeline import Timeline


@dataclass(slots=True)
class Network:
    """Everything that is on its way."""

    timeline: Timeline
    chance: Random
    faults: Faults
    counted: Counter[str]
    _arrivals: dict[tuple[str, str], float] = field(default_factory=dict)
    _cut_until: dict[tuple[str, str], float] = field(default_factory=dict)
    """Per channel (process, receiver); with no receiver, all channels of a process."""
    _lost_after: dict[str, float] = field(default_factory=dict)
    _lingering: dict[str, float] = field(default_factory=dict)

    def send(self, process: str, to: str, arrive: Callable[[], None]) -> None:
        """Send something from a process to a party, where it will `arrive`, or not."""
        timeline, faults = self.timeline, self.faults
        channel = (process, to)
        everything = (process, "")
        if timeline.fault(faults.cut, "cut"):
            which = channel if self.chance.random() < 0.5 else everything
            self._cut_until[which] = timeline.now + self.chance.expovariate(100.0)
        if timeline.now < max(self._cut_until.get(c, 0.0) for c in (channel, everything)):
            self.counted["lost message"] += 1
            return
        delay = self.chance.expovariate(1 / faults.delay_s)
        if self.chance.random() < faults.slow:
            delay *= 20
        when = max(timeline.now + delay, self._arrivals.get(channel, 0.0))
        self._arrivals[channel] = when
        event = partial(self._arrive, process, arrive)
        timeline.at_time(when, event)  # exactly then, so that a channel keeps its order
        if timeline.fault(faults.repeat, "repeated message"):
            timeline.at_time(when, event)

    def crashed(self, process: str, back_after: float) -> None:
        """A process has died; its successor starts after some time."""
        now, chance = self.timeline.now, self.chance
        if self.timeline.fault(self.faults.linger, "lingering messages"):
            self._lingering[process] = back_after + chance.expovariate(50.0)
        else:  # a tail of what it sent last never leaves its buffers
            self._lost_after[process] = now + chance.random() * self.faults.delay_s

    def _arrive(self, process: str, arrive: Callable[[], None]) -> None:
        if self.timeline.now > self._lost_after.get(process, inf):
            self.counted["lost message"] += 1
        elif process in self._lingering:
            self.timeline.after(self._lingering[process], arrive)
        else:
            arrive()
