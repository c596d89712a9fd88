"""Event time: when something happened, as opposed to the order in which it is processed.

The *watermark* of a source at a label is the largest event time of its records up to this label,
minus the delay that the source allows; it is ENDED once the source has ended. The watermark of an
operator is the minimum over the sources that reach it. It is a function of the labelled input, so
everything that depends on it is the same in each run: late records, windows, timers.

Example: two sources, the first with an allowed delay of 5 microseconds.

    >>> clock = Clock([5, 0])
    >>> clock.record(front=0, time=1, event_time=100)
    >>> clock.record(front=1, time=2, event_time=97)
    >>> clock.record(front=0, time=3, event_time=90)  # out of order: the watermark stays
    >>> clock.record(front=0, time=4, event_time=110)
    >>> clock.complete(5)  # all steps of records with times below 5 are recorded
    >>> watermark = Watermark(clock, (0, 1))
    >>> [watermark.before((time, 0)) for time in (3, 5)]
    [95, 97]
    >>> watermark.first_root(at=96)
    (4, 0)

Event times are integers: microseconds since 1970, UTC.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from hashlib import blake2b
from math import isfinite

import msgpack

from driftline.engine.errors import FlowError, MalformedMessage
from driftline.engine.labels import INFINITY, Label

LIMIT = 1 << 55
"""Event times lie between -LIMIT and LIMIT: in the years 829 to 3111."""

TIMER_LIMIT = 1 << 57
"""Times of timers, such as the ends of windows, lie between -TIMER_LIMIT and TIMER_LIMIT."""

_ZERO = 1 << 60
"""Number in a label that stands for a timer's time 0."""

ENDED = INFINITY
"""Watermark of a source that has ended; larger than every event time."""

NEVER = -INFINITY
"""Watermark before the first record; smaller than every event time."""

END = msgpack.ExtType(1, b"end")
"""Payload of the record that a front adds at the end of a source with event times: from its label
on the watermark of the source is ENDED."""

_NEGATIVE = 1 << 61
"""Offset of the number in a label that stands for a negative event time."""

_TIMERS = 1 << 62
"""Offset of the number in a label that stands for the timers of an operator."""

UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
"""Unit of a number -> microseconds."""

_DURATION_UNITS = {**UNITS, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000}
_DURATION_UNITS["d"] = 24 * _DURATION_UNITS["h"]
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*")

Duration = str | int | float | timedelta
"""A duration: text such as "5s", "15m" or "1d", a number of seconds, or a timedelta."""


def parse_duration(duration: Duration, what: str, *, least: int = 0) -> int:
    """Return a duration in microseconds. `what`: for errors; `least`: the smallest valid value.

    >>> parse_duration("1.5m", "size"), parse_duration(2, "size")
    (90000000, 2000000)

    Raises FlowError.
    """
    found: int | None = None
    if isinstance(duration, timedelta):
        found = duration // timedelta(microseconds=1)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        if abs(duration) < LIMIT / UNITS["s"]:
            found = _rounded(duration * UNITS["s"])
    elif isinstance(duration, str) and (match := _DURATION.fullmatch(duration)):
        number, unit = match.groups()
        if unit in _DURATION_UNITS:
            found = _rounded(float(number) * _DURATION_UNITS[unit])
    if found is None or not least <= found < LIMIT:
        raise FlowError(
            f"{what} cannot be {duration!r}: give a duration such as '500ms', '5s', '15m', '1h' or "
            "'7d', a number of seconds, or a timedelta"
        )
    return found


def to_microseconds(value: object, unit: str = "s") -> int:
    """Return an event time in microseconds since 1970.

    `value`: a datetime, ISO 8601 text, or a number of units; without time zone it is in UTC.

    >>> to_microseconds("1970-01-01T00:00:01Z"), to_microseconds(1.5), to_microseconds(7, "ms")
    (1000000, 1500000, 7000)

    Raises ValueError for anything else.
    """
    if type(value) is int:
        found = value * UNITS[unit]
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value!r} is not an event time")
        scaled = _rounded(value * UNITS[unit])
        found = LIMIT if scaled is None else scaled
    else:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise ValueError(
                f"{value!r:.100} is not an event time: give a datetime, ISO 8601 text or a number"
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        found = (moment - _EPOCH) // timedelta(microseconds=1)
    if not -LIMIT < found < LIMIT:
        raise ValueError(f"{value!r:.100} is out of the range of event times: is the unit {unit}?")
    return found


def _rounded(value: float) -> int | None:
    """Return the nearest integer; None for infinity and NaN."""
    return round(value) if isfinite(value) else None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_text(microseconds: int, zone: tzinfo = UTC) -> str:
    """Return an event time as ISO 8601 text; in UTC with a "Z" at the end.

    >>> iso_text(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    moment = (_EPOCH + timedelta(microseconds=microseconds)).astimezone(zone)
    return moment.isoformat().replace("+00:00", "Z")


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
        found = to_microseconds(datetime.combine(day, time(fold=fold), zone))
        before, after = (
            (_EPOCH + timedelta(microseconds=each)).astimezone(zone).date()
            for each in (found - 1, found)
        )
        if before < day <= after:
            return found
    return found


@dataclass(frozen=True)
class EventTime:
    """Event times of a source. `unit`: of numbers; `max_delay`: in microseconds."""

    unit: str
    max_delay: int


# Labels.


def timestamped(label: Label, event_time: int) -> Label:
    """Return the label of a root with its event time, as its third number."""
    return (*label, event_time if event_time >= 0 else _NEGATIVE - event_time)


def timer_label(
    root: Label, operator: int, at: int, rank: int, number: int, event_time: int
) -> Label:
    """Return the label of a timer's firing.

    It is larger than the labels of all elements of the root at the operator. `operator`: number of
    its vertex; `at`: the time for which the timer is set; `rank`: number that stands for the key;
    `number`: counts the timers of a key that fire for the same time; `event_time`: of the outputs.
    """
    return (*root, _TIMERS + operator, _ZERO + at, rank, number, _ZERO + event_time)


def is_fired(label: Label) -> bool:
    """Return whether an element is the output of a timer.

    The timer fired because the watermark moved at the root. For an operator behind, the element
    comes before this move, so that it is not late.
    """
    return label[2] >= _TIMERS


def rank_of(packed_key: bytes) -> int:
    """Return the number that stands for a key in labels of timers.

    Two keys have the same number with probability 2^-62.
    """
    return int.from_bytes(blake2b(packed_key, digest_size=8).digest(), "big") >> 2


def event_time_of(label: Label) -> int:
    """Return the event time of an element: of its record, or of the timer that made it."""
    number = label[2]
    if number >= _TIMERS:
        return label[6] - _ZERO
    return number if number < _NEGATIVE else _NEGATIVE - number


# Watermarks.


class Clock:
    """Event times of the sources, as functions of the label.

    `delays`: per front, the allowed delay of its source in microseconds; None: it has no event
    times.
    """

    def __init__(self, delays: Sequence[int | None]) -> None:
        self.delays = delays
        self._times: list[list[int]] = [[] for _ in delays]
        """Per front: times of the records at which the largest event time grows."""
        self._largest: list[list[int]] = [[] for _ in delays]
        """Per front: the largest event time from each of these times on."""
        self._recorded: list[list[tuple[int, int]]] = [[] for _ in delays]
        """Per front: (time, event time) of records above the complete times."""
        self.completed = 0
        """Event times of all records below this time are known."""

    def record(self, front: int, time: int, event_time: int) -> None:
        """Record the event time of a record, or ENDED at the end of a source."""
        if time >= self.completed and self.delays[front] is not None:
            self._recorded[front].append((time, event_time))

    def record_all(self, event_times: Iterable[tuple[int, int, int]]) -> None:
        """Record (front, time, event time) of several records. Raises MalformedMessage."""
        for front, of_record, event_time in event_times:
            if not 0 <= front < len(self.delays):
                raise MalformedMessage(f"an event time of front {front}, which is not there")
            self.record(front, of_record, event_time)

    def complete(self, time: int) -> None:
        """Note that the event times of all records below a time are recorded."""
        if time <= self.completed:
            return
        self.completed = time
        for front, recorded in enumerate(self._recorded):
            if not recorded:
                continue
            recorded.sort()
            cut = bisect_left(recorded, (time,))
            times, largest = self._times[front], self._largest[front]
            for of_record, event_time in recorded[:cut]:
                if not largest or event_time > largest[-1]:
                    times.append(of_record)
                    largest.append(event_time)
            del recorded[:cut]

    def watermark_before(self, front: int, time: int) -> int:
        """Return the watermark of a source before its record of a time."""
        at = bisect_left(self._times[front], time)
        if at == 0:
            return NEVER
        largest, delay = self._largest[front][at - 1], self.delays[front]
        assert delay is not None
        return largest if largest == ENDED else largest - delay

    def first_time(self, front: int, watermark: int) -> int:
        """Return the time of the record at which the watermark of a source reaches a value.

        Precondition: a complete record reaches it.
        """
        delay = self.delays[front]
        assert delay is not None
        return self._times[front][bisect_left(self._largest[front], watermark + delay)]

    def forget(self, time: int) -> None:
        """Forget what only labels below a time need."""
        for times, largest in zip(self._times, self._largest, strict=True):
            cut = bisect_left(times, time) - 1
            if cut > 0:
                del times[:cut], largest[:cut]

    def as_of(self, time: int) -> tuple[tuple[int, int], ...]:
        """Return the state as of a complete time: per front, (time, largest event time) or (0, 0).

        Precondition: no later time was forgotten.
        """
        found = []
        for times, largest in zip(self._times, self._largest, strict=True):
            at = bisect_left(times, time)
            found.append((times[at - 1], largest[at - 1]) if at else (0, 0))
        return tuple(found)

    def restore(self, state: Iterable[tuple[int, int]], time: int) -> None:
        """Restore the state as of a time."""
        for front, (of_record, event_time) in enumerate(state):
            if of_record:
                self._times[front], self._largest[front] = [of_record], [event_time]
        self.completed = time


class Watermark:
    """Watermark of an operator. `fronts`: the numbers of the fronts of the sources that reach it.

    Precondition of all methods: the clock is complete up to the label.
    """

    def __init__(self, clock: Clock, fronts: tuple[int, ...]) -> None:
        self.clock = clock
        self._fronts = fronts

    def before(self, root: Label) -> int:
        """Return the watermark before the record with this label: (time, front)."""
        time, number = root[0], root[1]
        return min(
            self.clock.watermark_before(front, time + (front < number)) for front in self._fronts
        )

    def at(self, root: Label) -> int:
        """Return the watermark at a record, with its own event time."""
        return self.before((root[0], root[1] + 1))

    def along(self, labels: Sequence[Label]) -> list[tuple[int, int]]:
        """Return, per label in ascending order, the watermark before and at its root."""
        found = []
        last: Label = ()
        both = NEVER, NEVER
        for label in labels:
            root = label[:2]
            if root != last:
                last, both = root, (self.before(root), self.at(root))
            found.append(both)
        return found

    def first_root(self, at: int) -> Label:
        """Return the first root at which the watermark is at least `at`.

        Precondition: it is, at a complete label.
        """
        return max((self.clock.first_time(front, at), front) for front in self._fronts)
