"""Marker alignment: the end of each epoch at a port (thesis, Algorithm 6; Flink's barriers).

Takes: frames and markers of the port's channels. Gives: which frames may be worked off now, when
the epoch is complete, and then the frames that had to wait.
Invariant, if aligned: when the epoch is complete, exactly the frames before each channel's marker
have been worked off, so the state is the effect of the epochs so far.

A channel is a (sender, feeder) pair that sends to the port. A marker ends the epoch on its channel;
the port's epoch is complete once the marker has come on all channels. If aligned, frames behind a
marker wait until then. If not (at-least-once), they are worked off at once: the state then contains
part of the next epoch, which a replay applies once more.
"""

from __future__ import annotations

from typing import Generic, TypeVar

F = TypeVar("F")
Channel = tuple[str, int]


class Alignment(Generic[F]):
    """The channels of one port, for frames of type F; `aligned`: frames wait for markers."""

    def __init__(self, channels: set[Channel], aligned: bool) -> None:
        self._channels = channels
        self._aligned = aligned
        self._ended: set[Channel] = set()
        self._waiting: list[F] = []
        self.epoch = 0
        """The epoch that has ended on some channels, or on all; 0 before the first marker."""

    def admit(self, channel: Channel, frame: F) -> bool:
        """Whether a frame may be worked off now. If not, it is kept for `next_epoch`."""
        if self._aligned and channel in self._ended:
            self._waiting.append(frame)
            return False
        return True

    def mark(self, channel: Channel, epoch: int) -> None:
        """Note the marker of an epoch on a channel. Precondition: the channel feeds this port."""
        assert channel in self._channels, f"a marker from {channel}, which does not feed this port"
        self._ended.add(channel)
        self.epoch = epoch

    @property
    def complete(self) -> bool:
        """Whether the marker has come on all channels."""
        return self._ended == self._channels

    def next_epoch(self) -> list[F]:
        """Enter the next epoch. Returns the frames that had to wait, in order of arrival.

        Precondition: `complete`.
        """
        self._ended = set()
        waiting, self._waiting = self._waiting, []
        return waiting
