"""The window of a front: the records under way, bounded in number and in bytes.

A record is under way until it is settled. Its copies along the way (frames, outputs, bundles) are
bounded with it.

    >>> window = Window(3, bytes_max=100)
    >>> for time in (1, 2):
    ...     window.add(time, 60)
    >>> window.full  # 120 bytes are under way
    True
    >>> window.settle(2)  # records below time 2 are settled
    >>> window.full
    False

Takes: records that were sent, and how far they are settled. Gives: whether another one may be sent.
Invariant: at most `records` records are under way, and at most `bytes_max` bytes before the last
one was sent; so a record of any size can be sent.
"""

from __future__ import annotations

from collections import deque

WINDOW = 384
"""Records that may be under way, by default."""

WINDOW_BYTES = 1 << 25
"""Bytes under way from which on no record is sent."""


class Window:
    """The records of one front that are under way."""

    def __init__(self, records: int = WINDOW, bytes_max: int = WINDOW_BYTES) -> None:
        self.records = records
        self.bytes_max = bytes_max
        self.bytes = 0
        """Bytes of the records that are under way."""
        self._flight: deque[tuple[int, int]] = deque()
        """(time, bytes) of each"""

    @property
    def full(self) -> bool:
        """Whether no record may be sent."""
        return len(self._flight) >= self.records or self.bytes >= self.bytes_max

    @property
    def under_way(self) -> int:
        """How many records are under way."""
        return len(self._flight)

    def told(self) -> dict[str, int]:
        """What is under way, as figures of a `Report`."""
        full = int(self.full)
        return {"under_way": self.under_way, "under_way_bytes": self.bytes, "window_full": full}

    def add(self, time: int, size: int) -> None:
        """A record was sent. Times grow."""
        self._flight.append((time, size))
        self.bytes += size

    def settle(self, time: int) -> None:
        """Records below this time are not under way any more."""
        flight = self._flight
        while flight and flight[0][0] < time:
            self.bytes -= flight.popleft()[1]

    def clear(self) -> None:
        """No record is under way."""
        self._flight.clear()
        self.bytes = 0
