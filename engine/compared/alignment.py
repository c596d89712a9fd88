"""Marker alignment: where a port's epochs end (thesis, Algorithm 6; Flink's barriers).

The channels of a port are the (sender, feeder) pairs that send to it. A marker ends the epoch on
its channel; once it has come on all channels, the port's epoch is over. Aligned, what follows a
marker on its channel waits until then, so that the state at that moment is exactly the effect
of the epochs so far. Not aligned (at-least-once), it is worked off at once, and the state holds
a little of the next epoch as well, which a replay will then apply again.
"""

from __future__ import annotations

from typing import Generic, TypeVar

F = TypeVar("F")
Channel = tuple[str, int]


class Alignment(Generic[F]):
    """The channels of one port. `F` is what travels on them."""

    def __init__(self, channels: set[Channel], aligned: bool) -> None:
        self._channels = channels
        self._aligned = aligned
        self._ended: set[Channel] = set()
        self._waiting: list[F] = []
        self.epoch = 0
        """The epoch that is ending on some channels, or that ended last."""

    def admit(self, channel: Channel, frame: F) -> bool:
        """Whether a frame may be worked off now; otherwise it is kept until the epoch is over."""
        if self._aligned and channel in self._ended:
            self._waiting.append(frame)
            return False
        return True

    def mark(self, channel: Channel, epoch: int) -> None:
        """A marker has come."""
        assert channel in self._channels, f"a marker from {channel}, which does not feed this port"
        self._ended.add(channel)
        self.epoch = epoch

    @property
    def complete(self) -> bool:
        """Whether the marker has come on all channels."""
        return self._ended == self._channels

    def next_epoch(self) -> list[F]:
        """Enter the next epoch; what had to wait is returned, in order of arrival."""
        self._ended = set()
        waiting, self._waiting = self._waiting, []
        return waiting
