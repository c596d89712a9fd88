"""What a barrier without label order has delivered: frontiers that wait for the consumer.

Takes: the processed frontier, and the last unit (see `barrier.barrier`) with an output below it;
units that the consumer has. Gives: the time below which the consumer has all outputs. Invariant:
that time never falls, and the frontiers that wait, and their units, grow.

    >>> awaited = Awaited()
    >>> awaited.add(10, unit=1)
    >>> awaited.add(20, unit=2)
    >>> awaited.delivered(stored=1)
    10

So outputs that were made later hold nothing back: under load there are always some. Memory: one
frontier for each unit.
"""

from __future__ import annotations

from collections import deque


class Awaited:
    """The frontiers of one barrier in one incarnation."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque()
        """(unit, frontier)"""
        self._delivered = 0

    def add(self, processed: int, unit: int) -> None:
        """All outputs below a time have been made, and are in this unit or in earlier ones."""
        waiting = self._waiting
        if waiting and processed <= waiting[-1][1]:
            return
        if waiting and unit <= waiting[-1][0]:
            unit = waiting.pop()[0]
        waiting.append((unit, processed))

    def delivered(self, stored: int) -> int:
        """The consumer has all outputs below this time; `stored`: it has all units up to this."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= stored:
            self._delivered = max(self._delivered, waiting.popleft()[1])
        return self._delivered
