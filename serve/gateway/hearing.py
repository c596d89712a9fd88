"""When the processes beside the gateway were heard last: one that hangs does not end by itself.

Takes: that something has come from a process, and a look now and then, both in the gateway's loop.
Gives: for how long a process has been silent. Invariants: only a process that was heard since it
was started is silent, as starting may take as long as it likes; and time in which the loop itself
stood still does not count, as nothing could be heard then.
"""

from __future__ import annotations

LOOK_EVERY_S = 0.5
"""How often the loop shows that it goes on."""

GAP_S = 2.0
"""A longer time between two looks means that the loop, or the machine, stood still."""


class Hearing:
    """When each process that one gateway hears was heard last. Times are in seconds, monotonic."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._looked = self._awake_since = 0.0

    def heard(self, name: str, now: float) -> None:
        """Something has come from a process."""
        self._heard[name] = now

    def look(self, now: float) -> None:
        """The loop goes on."""
        if now - self._looked > GAP_S:
            self._awake_since = now
        self._looked = now

    def silent_s(self, name: str, started: float) -> float:
        """For how long nothing has come from a process that was started at a time."""
        heard = self._heard.get(name, 0.0)
        return self._looked - max(heard, self._awake_since) if heard > started else 0.0
