"""Timers of keyed operators, as user functions see them: `context.timers`.

`engine.operators.timed` fires them.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import NamedTuple

from driftline.engine.event_time import (
    ENDED,
    TIMER_LIMIT,
    Duration,
    parse_duration,
    to_microseconds,
)
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.state.managed import MapState

TIMERS = MapState[str, int]("(timers)")
"""State with the timers of a key: name -> time. The last state of each operator with timers."""


class Timer(NamedTuple):
    """Timer that fires, as the timer's function receives it."""

    name: str
    at: int
    """Time for which the timer was set, in microseconds since 1970."""


_EXPIRY = "(ttl)"
"""First part of the names of *expiry timers*, which drop values of states with a time to live."""


def expiry_timer(state: str, item: bytes = b"") -> str:
    """Return the name of the expiry timer of a state's value.

    `item`: packed key of the item to drop, if the state is a map.

    >>> parse_expiry_timer(expiry_timer("last", b"x"))
    ('last', b'x')
    """
    return f"{_EXPIRY} {item.hex()} {state}"


def parse_expiry_timer(name: str) -> tuple[str, bytes] | None:
    """Return (state, packed key of the item) that a timer drops; None for any other timer."""
    if not name.startswith(_EXPIRY):
        return None
    _, item, state = name.split(" ", 2)
    return state, bytes.fromhex(item)


def no_outputs(context: TimedContext, timer: Timer, *states: object) -> tuple[()]:
    """Return no outputs: the timer function of an operator that has only expiry timers."""
    return ()


FIRINGS_AT_END_MAX = 1000
"""How often the timers of a key may fire at the end of the input, in addition to one firing of each
timer that was set before the end."""


class EndlessTimers:
    """Detector of timers of a key that set each other without end, once the input has ended."""

    def __init__(self) -> None:
        self._firings_left: int | None = None

    def check(self, name: str, others: int) -> None:
        """Record that a timer of the key fires at the end.

        `others`: number of the other timers that are set for the key.

        Raises RuntimeError if more timers fire than `FIRINGS_AT_END_MAX` allows.
        """
        if self._firings_left is None:
            self._firings_left = others + FIRINGS_AT_END_MAX
        elif self._firings_left:
            self._firings_left -= 1
        else:
            raise RuntimeError(
                f"timer {name!r} is set again each time it fires, and the input has ended: set no "
                "timer if context.at_end"
            )


class Timers:
    """Timers of a key: ``context.timers``.

    A timer fires once: at the first record at which the watermark reaches its time, or at once if
    the watermark has passed it. Timers of a key fire in the order of their times. Those for the
    same time fire in the order of their names.
    """

    __slots__ = ("_key", "_min_time", "_on_change", "_state", "now")

    def __init__(
        self,
        state: MutableMapping[str, int],
        key: object,
        on_change: Callable[[object, int, int], None],
        now: int = 0,
        least: int = -TIMER_LIMIT,
    ) -> None:
        """`state`: the times of the key's timers, by name; `on_change`: called with the key, the
        time of a timer, and 1 if the timer is new, 0 if it has moved, -1 if it is cancelled; `now`:
        event time of the element, or time of the firing timer; `least`: the smallest time that may
        be set."""
        self._state = state
        self._key = key
        self.now = now
        self._min_time = least
        self._on_change = on_change

    def set(self, name: str, at: object = None, *, after: Duration | None = None) -> None:
        """Set a timer, or move the timer that has this name.

        Args:
            name: Name of the timer; other keys have timers of their own.
            at: When it fires: microseconds since 1970, a datetime or ISO 8601 text, in UTC if it
                has no time zone.
            after: Instead of `at`: a duration, counted from the event time of the element, or from
                the time of the timer that fires.

        Raises:
            TypeError: The name is not a text, or not exactly one of `at` and `after` is given.
            ValueError: `at` is not a time; the time is out of range; the time is not later than
                that of the timer that fires; or the name is reserved.
            FlowError: `after` is not a duration.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a timer is a text, not {name!r:.100}")
        if name.startswith(_EXPIRY):
            raise ValueError(
                f"timer {name!r:.100}: names that begin with {_EXPIRY!r} are reserved; "
                "choose another name"
            )
        if (at is None) == (after is None):
            raise TypeError(f"timer {name!r}: give either a time or after=")
        if after is not None:
            time = self.now + parse_duration(after, f"timer {name!r}: after", least=-TIMER_LIMIT)
        elif isinstance(at, int) and not isinstance(at, bool):
            time = int(at)  # not an IntEnum
        else:
            time = to_microseconds(at, "us")
        if not -TIMER_LIMIT <= time < TIMER_LIMIT:
            raise ValueError(f"timer {name!r}: the time {time} is out of range")
        if time < self._min_time:
            raise ValueError(
                f"timer {name!r}: a timer that fires at {self.now} can only set later timers, "
                f"not one at {time}"
            )
        self._put(name, time)

    def renew(self, name: str, ttl: int) -> None:
        """Set a timer to `ttl` microseconds after `now`, unless it is set to a later time."""
        self._put(name, max(self._state.get(name, -TIMER_LIMIT), self.now + ttl))

    def _put(self, name: str, time: int) -> None:
        old_time = self._state.get(name)
        if old_time != time:
            self._state[name] = time
            self._on_change(self._key, time, 1 if old_time is None else 0)

    def cancel(self, name: str) -> None:
        """Cancel a timer; do nothing if it is not set."""
        old_time = self._state.get(name)
        if old_time is not None:
            del self._state[name]
            self._on_change(self._key, old_time, -1)

    def get(self, name: str) -> int | None:
        """Return the time for which a timer is set, in microseconds since 1970, or None."""
        return self._state.get(name)


class TimedContext(Context):
    """Context of a function of an operator with timers."""

    __slots__ = ("at_end", "count_late", "event_time", "timers", "watermark", "watermark_before")

    event_time: int
    """Event time of the element, or time of the timer, in microseconds since 1970."""

    watermark: int
    """Watermark at the label: all records with smaller event times have arrived, or are late."""

    at_end: bool
    """Whether all sources of the operator have ended. The remaining timers then fire."""

    timers: Timers
    """Timers of the key."""

    watermark_before: int
    """Watermark before the record to which the label belongs. If this record completes windows
    without allowed lateness, the event times of their rows are not smaller."""

    count_late: Callable[[int], None]
    """Counts an element that is too late for its windows; takes the time of its label."""

    def __init__(
        self,
        label: Label,
        key: object,
        event_time: int,
        watermark: int,
        watermark_before: int,
        timers: Timers,
        count_late: Callable[[int], None] = lambda time: None,
    ) -> None:
        super().__init__(label, key)
        self.event_time = event_time
        self.watermark = watermark
        self.watermark_before = watermark_before
        self.at_end = watermark == ENDED
        self.timers = timers
        self.count_late = count_late


def is_due(context: TimedContext, timer: Timer, at: int) -> bool:
    """Return whether the watermark has reached a time; if not, set a firing timer again for it.

    It has not if the timer was set for an earlier time, before a change of the code.
    """
    if at <= context.watermark:
        return True
    context.timers.set(timer.name, at)
    return False
