"""Windows: the intervals of event time that an element belongs to.

    >>> seconds = lambda windows: [(start // 1_000_000, end // 1_000_000) for start, end in windows]
    >>> seconds(Tumbling("1m").assign(90_000_000))
    [(60, 120)]
    >>> seconds(Hopping("1m", every="30s").assign(100_000_000))
    [(60, 120), (90, 150)]
    >>> seconds(Session("30s").assign(100_000_000))
    [(100, 130)]

A window contains the event times from its start up to, but without, its end.
"""

from __future__ import annotations

from typing import ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from driftline.engine.errors import FlowError
from driftline.engine.event_time import Duration, calendar_day, iso_text, parse_duration

Interval = tuple[int, int]
"""(start, end) of a window, in microseconds since 1970."""

WINDOWS_MAX = 1000
"""Largest number of windows that one element may belong to."""


class Windows:
    """Base of the kinds of windows."""

    merges: ClassVar[bool] = False
    """Whether windows of a key that overlap or touch become one."""

    def assign(self, event_time: int) -> list[Interval]:
        """Return the windows of an event time (microseconds since 1970), in order."""
        raise NotImplementedError

    def describe(self, microseconds: int) -> str:
        """Return the start or end of a window as ISO 8601 text."""
        return iso_text(microseconds)

    def parameters(self) -> tuple[object, ...]:
        """Return everything that determines the windows."""
        return (type(self).__name__, *vars(self).values())


class Tumbling(Windows):
    """Windows of one size that follow each other without a gap, aligned to 1970-01-01 (UTC).

    Args:
        size: Length of a window.
        offset: Shifts the start of all windows by this duration.

    Raises:
        FlowError: A duration is invalid.
    """

    def __init__(self, size: Duration, *, offset: Duration = 0) -> None:
        self.size = parse_duration(size, "size of a tumbling window", least=1)
        self.offset = parse_duration(offset, "offset of a tumbling window")

    def assign(self, event_time: int) -> list[Interval]:
        start = (event_time - self.offset) // self.size * self.size + self.offset
        return [(start, start + self.size)]


class Hopping(Windows):
    """Windows of one size that begin at regular intervals, and may overlap or leave gaps.

    The intervals count from 1970-01-01 (UTC).

    Args:
        size: Length of a window.
        every: Distance between the starts of consecutive windows. If it is larger than the size,
            elements in the gaps belong to no window; they change no row, and are not late.
        offset: Shifts the start of all windows by this duration.

    Raises:
        FlowError: A duration is invalid, or an element would be in more than 1000 windows.
    """

    def __init__(self, size: Duration, *, every: Duration, offset: Duration = 0) -> None:
        self.size = parse_duration(size, "size of a hopping window", least=1)
        self.every = parse_duration(every, "every of a hopping window", least=1)
        self.offset = parse_duration(offset, "offset of a hopping window")
        if self.size > WINDOWS_MAX * self.every:
            raise FlowError(
                f"an element would be in {-(-self.size // self.every)} hopping windows of {size!r} "
                f"every {every!r}; give a larger every, so that it is in at most {WINDOWS_MAX}"
            )

    def assign(self, event_time: int) -> list[Interval]:
        first_start = self.latest_start(event_time - self.size) + self.every
        starts = range(first_start, self.latest_start(event_time) + 1, self.every)
        return [(start, start + self.size) for start in starts]

    def latest_start(self, time: int) -> int:
        """Return the latest start of a window that is not later than a time."""
        return (time - self.offset) // self.every * self.every + self.offset

    @property
    def overlap(self) -> bool:
        """Whether an event time may be in several windows."""
        return self.size > self.every

    def pane(self, event_time: int) -> Interval:
        """Return the pane of an event time: the interval of event times with the same windows.

            >>> Hopping(5, every=3).pane(7_000_000)
            (6000000, 8000000)

        Precondition: windows overlap.
        """
        start = self.latest_start(event_time)
        first_end = start + self.size % self.every  # the only end in [start, start + every)
        return (start, first_end) if event_time < first_end else (first_end, start + self.every)


class Session(Windows):
    """Windows that end once a key has had no element for a while.

    Args:
        gap: A session ends this long after its last element. Elements at most this far apart are in
            one session.

    Raises:
        FlowError: The duration is invalid.
    """

    merges = True

    def __init__(self, gap: Duration) -> None:
        self.gap = parse_duration(gap, "gap of sessions", least=1)

    def assign(self, event_time: int) -> list[Interval]:
        return [(event_time, event_time + self.gap)]


class Days(Windows):
    """Calendar days in a time zone. A day on which the clock changes has 23 or 25 hours.

    Args:
        zone: Name of the time zone, such as "Europe/Berlin".

    Raises:
        FlowError: There is no such time zone.
    """

    def __init__(self, zone: str = "UTC") -> None:
        try:
            self.zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            raise FlowError(
                f"unknown time zone {zone!r}; give a name such as 'Europe/Berlin' or 'UTC'"
            ) from None

    def assign(self, event_time: int) -> list[Interval]:
        return [calendar_day(event_time, self.zone)]

    def describe(self, microseconds: int) -> str:
        return iso_text(microseconds, self.zone)

    def parameters(self) -> tuple[object, ...]:
        return "Days", self.zone.key
