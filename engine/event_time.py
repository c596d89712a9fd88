"""Event time: when something happened, as opposed to the order in which it is processed.

The *watermark* of a source at a label is the largest event time of its records up to this label,
minus the delay that the source allows; it is ENDED once the source has ended. The watermark of an
operator is the minimum over the active sources that reach the operator: those that are neither idle
nor ended (see `Clock.watermark`). It lags behind the sources as far as the outputs of the operators
between may: for example, the row of a window waits for late elements. A watermark is a function of
the labelled input. So everything that depends on it is the same in each run: late records, windows,
timers.

Example: two sources, the first with an allowed delay of 5 microseconds.

    >>> clock = Clock([5, 0])
    >>> watermark = Watermark(clock, {0: 0, 1: 0})
    >>> clock.record(front=0, time=1, event_time=100)
    >>> clock.record(front=1, time=2, event_time=97)
    >>> clock.record(front=0, time=3, event_time=90)  # out of order: the watermark stays
    >>> clock.record(front=0, time=4, event_time=110)
    >>> clock.complete(5)  # all records with times below 5 are recorded
    >>> [watermark.before((time, 0)) for time in (3, 5)]
    [95, 97]
    >>> watermark.first_root(at=96)
    (4, 0)

Event times are integers: microseconds since 1970, UTC.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import TypeGuard

import msgpack
from msgspec import Struct

from driftline.engine.errors import FlowError, MalformedMessage
from driftline.engine.labels import INFINITY, Label
from driftline.engine.wire.codec import unpack

LIMIT = 1 << 55
"""Event times lie between -LIMIT and LIMIT: in the years 828 to 3111."""

TIMER_LIMIT = 1 << 57
"""Times of timers, such as the ends of windows, lie between -TIMER_LIMIT and TIMER_LIMIT."""

_TIME_BASE = 1 << 60
"""Added to times in the labels of timers, so that negative times become positive numbers."""

ENDED = INFINITY
"""Watermark of a source that has ended; larger than every event time."""

NEVER = -INFINITY
"""Watermark before the first record; smaller than every event time."""

IDLE, RESUMED = NEVER, NEVER + 1
"""Event times that stand for the beginning and the end of an idle period of a source."""

_MARK = 1
"""Code of the ExtType of a mark."""

END = msgpack.ExtType(_MARK, b"end")
"""Mark at the end of a source. A *mark* is a record without data of the user: a source with event
times inserts it to move watermarks."""

IDLE_MARK, RESUMED_MARK = msgpack.ExtType(_MARK, b"idle"), msgpack.ExtType(_MARK, b"resumed")
"""Marks at the beginning and the end of an idle period: until RESUMED_MARK the source does not hold
back watermarks."""

_SPECIAL_MARKS = {END: ENDED, IDLE_MARK: IDLE, RESUMED_MARK: RESUMED}
"""Mark -> the event time that it stands for."""

_NEGATIVE_BASE = 1 << 61
"""A label contains a negative event time `t` as `_NEGATIVE_BASE - t`."""

_OUTPUT_BASE = _TIME_BASE - TIMER_LIMIT
"""Smallest number in the label of an output that stands for an event time of the output's own (see
`output_label`). Numbers of children are smaller."""

_TIMER_BASE = 1 << 62
"""The third number of a timer's label is this plus the number of its operator. The third number of
a record's label is the event time."""

_ROUND_BASE = 1 << 62
"""Smallest mark of a round of an iteration (`engine.labels`)."""

UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
"""Unit of a number -> microseconds."""

_DURATION_UNITS = {**UNITS, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000}
_DURATION_UNITS["d"] = 24 * _DURATION_UNITS["h"]
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*")

Duration = str | int | float | timedelta
"""A duration: text such as "5s", "15m" or "1d", a number of seconds, or a timedelta."""


def parse_duration(duration: Duration, what: str, *, least: int = 0) -> int:
    """Return a duration in microseconds. `least`: the smallest valid value, in microseconds.

    >>> parse_duration("1.5m", "size"), parse_duration(2, "size")
    (90000000, 2000000)

    Raises FlowError for any other value; `what` names the duration in the error.
    """
    microseconds: int | None = None
    if isinstance(duration, timedelta):
        microseconds = duration // _MICROSECOND
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        if abs(duration) < LIMIT / UNITS["s"]:
            microseconds = _rounded(duration * UNITS["s"])
    elif isinstance(duration, str) and (match := _DURATION.fullmatch(duration)):
        number, unit = match.groups()
        if unit in _DURATION_UNITS:
            microseconds = _rounded(float(number) * _DURATION_UNITS[unit])
    if microseconds is None or not least <= microseconds < LIMIT:
        raise FlowError(
            f"{what} cannot be {duration!r}: give a duration such as '500ms', '5s', '15m', '1h' or "
            "'7d', a number of seconds, or a timedelta"
        )
    return microseconds


def to_microseconds(value: object, unit: str = "s") -> int:
    """Return an event time in microseconds since 1970.

    `value`: a datetime or ISO 8601 text, in UTC if it has no time zone; or a number. `unit`: the
    unit of a number, a key of `UNITS`.

    >>> to_microseconds("1970-01-01T00:00:01Z"), to_microseconds(1.5), to_microseconds(7, "ms")
    (1000000, 1500000, 7000)

    Raises ValueError for anything else.
    """
    if type(value) is int:
        microseconds = value * UNITS[unit]
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value!r} is not an event time")
        scaled = _rounded(value * UNITS[unit])
        microseconds = LIMIT if scaled is None else scaled
    else:
        if isinstance(value, str) and value.isdigit():  # `fromisoformat` finds dates in digits
            raise ValueError(f"{value!r:.100} is a text: convert it to a number, or write ISO 8601")
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise ValueError(
                f"{value!r:.100} is not an event time: give a datetime, ISO 8601 text or a number"
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        microseconds = (moment - _EPOCH) // _MICROSECOND
    if not -LIMIT < microseconds < LIMIT:
        raise ValueError(f"{value!r:.100} is out of the range of event times: is the unit {unit}?")
    return microseconds


def _rounded(value: float) -> int | None:
    """Return the nearest integer; None for infinity and NaN."""
    return round(value) if isfinite(value) else None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=1024)  # rows of many keys have the same windows
def iso_text(microseconds: int, zone: tzinfo = UTC) -> str:
    """Return an event time as ISO 8601 text, with "Z" for the offset of UTC.

    >>> iso_text(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    moment = (_EPOCH + timedelta(microseconds=microseconds)).astimezone(zone)
    return moment.isoformat().replace("+00:00", "Z")


def watermark_text(watermark: int) -> str | None:
    """Return a watermark as ISO 8601 text; None before the first record and after the end."""
    return None if watermark in (ENDED, NEVER) else iso_text(watermark)


def calendar_day(event_time: int, zone: tzinfo) -> tuple[int, int]:
    """Return the beginning and the end of the day of an event time, in a time zone.

    If the clock goes back over midnight, the day ends at the second midnight.
    """
    day = (_EPOCH + timedelta(microseconds=event_time)).astimezone(zone).date()
    day -= timedelta(days=event_time < _midnight(day, zone))
    return _midnight(day, zone), _midnight(day + timedelta(days=1), zone)


def _midnight(day: date, zone: tzinfo) -> int:
    """Return the last moment at which a day begins."""
    for fold in (1, 0):  # the clock may go back to midnight, or over it
        moment = (datetime.combine(day, time(fold=fold), zone) - _EPOCH) // _MICROSECOND
        before, after = (
            (_EPOCH + timedelta(microseconds=instant)).astimezone(zone).date()
            for instant in (moment - 1, moment)
        )
        if before < day <= after:
            return moment
    return moment


class EventTime(Struct, frozen=True):
    """Event time settings of a source. Durations are in microseconds.

    `unit`: unit of event times that are numbers; `max_delay`: allowed delay; `idle_after`: how long
    the source waits for a record before it is idle; `tick`: interval of the marks with the current
    time. `idle_after` and `tick` are for sources of live records.
    """

    unit: str
    max_delay: int
    idle_after: int | None = None
    tick: int | None = None


# Marks.


def time_mark(microseconds: int) -> msgpack.ExtType:
    """Return the mark that raises the largest event time of its source to this time."""
    return msgpack.ExtType(_MARK, microseconds.to_bytes(8, "big", signed=True))


def is_mark(payload: object) -> TypeGuard[msgpack.ExtType]:
    """Return whether the payload of a record is a mark."""
    return isinstance(payload, msgpack.ExtType) and payload.code == _MARK


def is_packed_mark(payload: bytes) -> bool:
    """Return whether an encoded payload is a mark."""
    return payload[0] in _EXTENSIONS and is_mark(unpack(payload))


_EXTENSIONS = frozenset((0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)))
"""First bytes of an encoded ExtType."""


def event_time_of_mark(mark: msgpack.ExtType) -> int:
    """Return the event time that a mark stands for: see `Clock.record`."""
    event_time = _SPECIAL_MARKS.get(mark)
    return int.from_bytes(mark.data, "big", signed=True) if event_time is None else event_time


# Labels.


def timestamped(label: Label, event_time: int) -> Label:
    """Return a label (time, front) with the event time as its third number."""
    return (*label, event_time if event_time >= 0 else _NEGATIVE_BASE - event_time)


def timer_label(root: Label, operator: int, at: int, rank: int, number: int) -> Label:
    """Return the label of the firing of a timer.

    It is larger than the labels of all elements of the root at the operator. `operator`: number of
    the vertex; `at`: the time for which the timer is set; `rank`: number that stands for the key;
    `number`: counts the timers of a key that fire for the same time.
    """
    return (*root, _TIMER_BASE + operator, _TIME_BASE + at, rank, number)


def output_label(label: Label, event_time: int, number: int) -> Label:
    """Return the label of an element's output that has an event time of its own.

    `number`: number of the output, from 0.
    """
    return (*label, _TIME_BASE + event_time, number)


def is_fired(label: Label) -> bool:
    """Return whether an element is the output of a timer, or was made from one.

    Precondition: the element has an event time.

    The timer fired because the watermark moved at the root. Downstream operators handle the element
    with the watermark before this move, so that it is not late.
    """
    return label[2] >= _TIMER_BASE


def rank_of(packed_key: bytes) -> int:
    """Return the number that stands for a key in labels of timers.

    Two keys have the same number with probability 2^-62.
    """
    return int.from_bytes(blake2b(packed_key, digest_size=8).digest(), "big") >> 2


def event_time_of(label: Label) -> int:
    """Return the event time of an element.

    It is that of the last `output_label` on the way to the element; without one, that of its record
    or the time of the timer that made it. Precondition: the element has an event time.
    """
    number, position = label[2], 3
    if number >= _TIMER_BASE:
        event_time, position = label[3] - _TIME_BASE, 6
    else:
        event_time = number if number < _NEGATIVE_BASE else _NEGATIVE_BASE - number
    while position < len(label):
        number = label[position]
        if number >= _ROUND_BASE:
            position += 1  # the next number stands for the path of a message
        elif number >= _OUTPUT_BASE:
            event_time = number - _TIME_BASE
        position += 1
    return event_time


# Watermarks.


class Status(IntEnum):
    """Status of a source with event times."""

    ACTIVE = 0
    IDLE = 1
    ENDED = 2


SourceTime = tuple[int, int]
"""(largest event time, status) of a source."""


class Clock:
    """States of the sources (`SourceTime`) by label, which determine the watermarks of operators.

    `delays`: per front, the allowed delay of its source in microseconds; None: the source has no
    event times.
    """

    def __init__(self, delays: Sequence[int | None]) -> None:
        self.delays = delays
        self.completed = 0
        """Event times of all records below this time are known."""
        self.sources: list[SourceTime] = [(NEVER, Status.ACTIVE)] * len(delays)
        """Per front, as of the completed time."""
        self.watermarks: list[Watermark] = []
        """The watermarks of operators that this clock updates."""
        self._oldest_sources = list(self.sources)
        """`sources` as of the last `forget`."""
        self._changes: list[tuple[int, int, SourceTime]] = []
        """(time, front, new state) of the changes of `sources` since the last `forget`."""
        self._recorded: list[tuple[int, int, int]] = []
        """(time, front, event time) of records from the completed time on."""

    def record(self, front: int, time: int, event_time: int) -> None:
        """Record the event time of a record, or ENDED, IDLE or RESUMED (see `event_time_of_mark`).

        The caller may leave out a record whose event time is not larger than that of an earlier
        record of the source. Records below the completed time are ignored.
        """
        if time >= self.completed and self.delays[front] is not None:
            self._recorded.append((time, front, event_time))

    def record_all(self, event_times: Iterable[tuple[int, int, int]]) -> None:
        """Record (front, time, event time) of several records.

        Raises MalformedMessage if the flow has no such front.
        """
        for front, record_time, event_time in event_times:
            if not 0 <= front < len(self.delays):
                raise MalformedMessage(
                    f"an event time of front {front}, but the flow has {len(self.delays)} fronts"
                )
            self.record(front, record_time, event_time)

    def complete(self, time: int) -> None:
        """Advance the completed time: `record` was called for all records below `time`."""
        if time <= self.completed:
            return
        self.completed = time
        if not self._recorded:
            return
        self._recorded.sort()
        cut = bisect_left(self._recorded, (time,))
        for record_time, front, event_time in self._recorded[:cut]:
            before = self.sources[front]
            after = self._after(front, before, event_time)
            if after != before:
                self.sources[front] = after
                self._changes.append((record_time, front, after))
                for watermark in self.watermarks:
                    if front in watermark.fronts:
                        watermark.update((record_time, front))
        del self._recorded[:cut]

    def _after(self, front: int, source: SourceTime, event_time: int) -> SourceTime:
        """Return the state of a source after a record."""
        largest, status = source
        if event_time == ENDED:
            return largest, Status.ENDED
        if event_time == IDLE:
            return largest, Status.IDLE
        if event_time == RESUMED:  # the source must not move a watermark back
            delay = self.delays[front]
            assert delay is not None
            lower_bounds = [
                watermark.newest + delay + watermark.fronts[front]
                for watermark in self.watermarks
                if front in watermark.fronts and NEVER < watermark.newest < ENDED
            ]
            return max((largest, *lower_bounds)), Status.ACTIVE
        return max(largest, event_time), status

    def watermark(self, fronts: Mapping[int, int]) -> int:
        """Return the watermark of an operator, as of the completed time.

        `fronts`: as of `Watermark`. If a source is active, it is the minimum over the active
        sources. If all sources have ended, it is ENDED. Otherwise it is the maximum over all
        sources.
        """
        watermarks: list[int] = []
        statuses = set()
        smallest = ENDED
        for front, further_delay in fronts.items():
            (largest, status), delay = self.sources[front], self.delays[front]
            assert delay is not None
            watermark = max(NEVER, largest - delay - further_delay)
            watermarks.append(watermark)
            statuses.add(status)
            if status == Status.ACTIVE:
                smallest = min(smallest, watermark)
        return max(watermarks) if smallest == ENDED and Status.IDLE in statuses else smallest

    def source_watermark(self, front: int) -> int:
        """Return the watermark of a source, as of the completed time."""
        (largest, status), delay = self.sources[front], self.delays[front]
        assert delay is not None
        return ENDED if status == Status.ENDED else max(NEVER, largest - delay)

    def holding_front(self, fronts: Mapping[int, int]) -> int | None:
        """Return the front that holds back an operator; `fronts`: as of `Watermark`.

        It is the front of an active source. None: no source is active.
        """
        active = [front for front in fronts if self.sources[front][1] == Status.ACTIVE]
        return min(active, key=lambda i: self.source_watermark(i) - fronts[i], default=None)

    def forget(self, time: int) -> None:
        """Drop the changes that are needed only for labels below a time."""
        cut = bisect_left(self._changes, (time,))
        for _, front, source in self._changes[:cut]:
            self._oldest_sources[front] = source
        del self._changes[:cut]
        for watermark in self.watermarks:
            watermark.forget(time)

    def as_of(self, time: int) -> tuple[SourceTime, ...]:
        """Return the states of the sources as of a complete time.

        Precondition: `forget` was not called with a later time.
        """
        sources = list(self._oldest_sources)
        for _, front, source in self._changes[: bisect_left(self._changes, (time,))]:
            sources[front] = source
        return tuple(sources)

    def restore(self, sources: Iterable[SourceTime], time: int) -> None:
        """Restore the states of the sources as of a time."""
        for front, source in enumerate(sources):
            self.sources[front] = self._oldest_sources[front] = source
        self.completed = time
        for watermark in self.watermarks:
            watermark.reset()


class Watermark:
    """Watermark of an operator.

    `fronts`: the fronts of the sources that reach the operator, each with the delay of the
    operators between (`FlowGraph.fronts_of`). Precondition of `before`, `at` and `along`: the clock
    is complete up to the labels.
    """

    def __init__(self, clock: Clock, fronts: Mapping[int, int]) -> None:
        self.fronts = fronts
        self._clock = clock
        self.reset()
        clock.watermarks.append(self)

    def reset(self) -> None:
        """Begin at the completed time of the clock."""
        self._start = self._clock.completed
        self._roots: list[Label] = [()]
        """(), which is smaller than all labels, and the roots at which the watermark grows."""
        self._values = [self._clock.watermark(self.fronts)]
        """The watermark from each of these labels on."""

    @property
    def newest(self) -> int:
        """The watermark at the last root that the clock has completed."""
        return self._values[-1]

    def update(self, root: Label) -> None:
        """Record the new watermark after a source has changed at a root."""
        value = self._clock.watermark(self.fronts)
        if value > self._values[-1]:
            self._roots.append(root)
            self._values.append(value)

    def forget(self, time: int) -> None:
        """Drop the values that are needed only for labels below a time."""
        cut = bisect_left(self._roots, (time,)) - 1
        del self._roots[:cut], self._values[:cut]

    def before(self, root: Label) -> int:
        """Return the watermark before the record with this label (time, front)."""
        return self._values[bisect_left(self._roots, root) - 1]

    def at(self, root: Label) -> int:
        """Return the watermark at a record, including the record's own event time."""
        return self._values[bisect_right(self._roots, root) - 1]

    def along(self, labels: Sequence[Label]) -> list[tuple[int, int]]:
        """Return (watermark before its root, watermark at its root) for each label.

        Precondition: the labels are in ascending order.
        """
        pairs = []
        first = bisect_left(self._roots, labels[0][:2]) if labels else len(self._roots)
        growth = zip(self._roots[first:], self._values[first:], strict=True)
        end: tuple[Label, int] = (INFINITY,), ENDED
        value = self._values[first - 1]
        next_root, next_value = next(growth, end)
        for label in labels:
            root = label[:2]
            while next_root < root:
                value = next_value
                next_root, next_value = next(growth, end)
            pairs.append((value, next_value if next_root == root else value))
        return pairs

    def first_root(self, at: int) -> Label:
        """Return the first root at which the watermark is at least `at`.

        If the watermark was at least `at` already at the last `reset`, return (time, 0) with the
        completed time of that `reset`. Precondition: the watermark reaches `at` below the completed
        time, and `forget` has not dropped this root.
        """
        return self._roots[bisect_left(self._values, at)] or (self._start, 0)
