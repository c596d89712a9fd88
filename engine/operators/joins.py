"""Joins of two streams: within an interval of event time, in windows, as of a time, by lookup, and
by broadcast.

Both streams enter one operator as pairs (side, element): 0 for the left stream, 1 for the right.
An output is a pair (left element, right element); None stands for a partner that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any, ClassVar, cast
from zlib import crc32

from driftline.engine.errors import PayloadError
from driftline.engine.keygroups import group_of
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.timers import TimedContext, Timer
from driftline.engine.state.managed import MapState, State, ValueState
from driftline.engine.wire.codec import pack

LEFT, RIGHT = 0, 1
"""Sides of a join."""

HOW = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "outer": (LEFT, RIGHT)}
"""Kind of a join -> the sides whose elements leave without a partner."""

Sided = tuple[int, object]
"""(side, element)"""

Pair = tuple[object, object]
"""(left element, right element); None in place of a missing one."""

Waiting = MapState[Label, tuple[int, object, bool]]
"""Label of an element -> (event time, element, whether it has had a partner)."""


def tag_left(element: object) -> Sided:
    """Return an element of the left stream as input of a join."""
    return LEFT, element


def tag_right(element: object) -> Sided:
    """Return an element of the right stream as input of a join."""
    return RIGHT, element


def _pair(side: int, element: object, other: object = None) -> Pair:
    return (element, other) if side == LEFT else (other, element)


@dataclass(frozen=True)
class IntervalJoin(KeyedOperator):
    """Join of elements whose event times differ by at least `earliest` and at most `latest`.

    The difference is that of the right element minus the left one, in microseconds. An element
    waits until the watermark has passed all possible partners. Then it leaves alone, if it has had
    no partner and its side is in `alone`.
    """

    earliest: int
    latest: int
    alone: tuple[int, ...]

    kind = "join"
    emits_many = True
    states: ClassVar[tuple[State, ...]] = (
        MapState[Label, tuple[int, object, bool]]("left"),
        MapState[Label, tuple[int, object, bool]]("right"),
    )

    def apply(
        self, context: TimedContext, sided: Sided, lefts: Waiting, rights: Waiting
    ) -> list[Pair]:
        side, element = sided
        now, mine = context.event_time, (lefts, rights)[side]
        others = (rights, lefts)[side]
        pairs = []
        for label in sorted(others):
            at, other, was_matched = others[label]
            if self._fits(side, now, at):
                pairs.append(_pair(side, element, other))
                if not was_matched:
                    others[label] = at, other, True
        mine[context.label] = now, element, bool(pairs)
        context.timers.set(_name(side, context.label), self._over(side, now))
        return pairs

    def fire(
        self, context: TimedContext, timer: Timer, lefts: Waiting, rights: Waiting
    ) -> list[Pair]:
        """Return the element without a partner that no partner can join any more."""
        side, label = _place(timer.name)
        _, element, was_matched = (lefts, rights)[side].pop(label)
        return [] if was_matched or side not in self.alone else [_pair(side, element)]

    def event_time_of_timer(self, timer: Timer) -> int:
        side, _ = _place(timer.name)
        return timer.at - self._over(side, 0)

    def _fits(self, side: int, now: int, other: int) -> bool:
        difference = other - now if side == LEFT else now - other
        return self.earliest <= difference <= self.latest

    def _over(self, side: int, now: int) -> int:
        """Return the watermark at which no partner of an element can arrive any more."""
        return now + 1 + (self.latest if side == LEFT else -self.earliest)

    def parameters(self) -> object:
        return self.earliest, self.latest, self.alone

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        context, (side, element) = cast(TimedContext, context), cast(Sided, value)
        stored = cast(list[Waiting], states)
        partners = [
            label
            for label, (at, _, _) in sorted(stored[1 - side].items())
            if self._fits(side, context.event_time, at)
        ]
        pairs: list[object] = []
        for label in partners:
            at, other, _ = stored[1 - side][label]
            stored[1 - side][label] = at, other, True
            pairs.append((element, other) if side == LEFT else (other, element))
        stored[side][context.label] = context.event_time, element, len(partners) > 0
        context.timers.set(_name(side, context.label), self._over(side, context.event_time))
        return pairs

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        side, label = _place(timer.name)
        _, element, matched = cast(list[Waiting], states)[side].pop(label)
        if matched or side not in self.alone:
            return []
        return [(element, None) if side == LEFT else (None, element)]


@dataclass(frozen=True)
class AsOfJoin(KeyedOperator):
    """Join of each left element with the right element that has the largest event time up to its
    own, at most `tolerance` earlier (None: any time); of equal ones the last.

    A left element waits until the watermark has passed its event time. Of the right elements, those
    that no later left element needs are dropped. The rows of windows may still arrive at the record
    that moves the watermark past them, so `watermark_before` decides.
    """

    tolerance: int | None

    kind = "as_of"
    emits_many = True
    states: ClassVar[tuple[State, ...]] = (
        MapState[Label, tuple[int, object, bool]]("left"),
        MapState[int, object]("right"),
    )

    def apply(
        self, context: TimedContext, sided: Sided, lefts: Waiting, rights: MapState[int, object]
    ) -> list[Pair]:
        side, element = sided
        now = context.event_time
        if side == LEFT:
            lefts[context.label] = now, element, False
            context.timers.set(_name(side, context.label), now + 1)
            return []
        rights[now] = element
        oldest = min([context.watermark_before, *(at for at, _, _ in lefts.values())])
        passed = [at for at in rights if at <= oldest]
        for at in passed:
            if at < max(passed):
                del rights[at]
        return []

    def fire(
        self, context: TimedContext, timer: Timer, lefts: Waiting, rights: MapState[int, object]
    ) -> list[Pair]:
        """Return a left element, and the right element as of its event time."""
        now, element, _ = lefts.pop(_place(timer.name)[1])
        times = [at for at in rights if at <= now]
        if not times or (self.tolerance is not None and now - max(times) > self.tolerance):
            return [(element, None)]
        return [(element, rights[max(times)])]

    def event_time_of_timer(self, timer: Timer) -> int:
        return timer.at - 1

    def parameters(self) -> object:
        return (self.tolerance,)

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[Any]
    ) -> list[object]:
        context, (side, element) = cast(TimedContext, context), cast(Sided, value)
        lefts, rights = states
        if side == LEFT:
            lefts[context.label] = context.event_time, element, False
            context.timers.set(_name(side, context.label), context.event_time + 1)
        else:
            rights[context.event_time] = element
            oldest = min([context.watermark_before] + [at for at, _, _ in lefts.values()])
            newest = max((at for at in rights if at <= oldest), default=None)
            for at in [at for at in rights if newest is not None and at < newest]:
                del rights[at]
        return []

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[Any]
    ) -> list[object]:
        lefts, rights = states
        now, element, _ = lefts.pop(_place(timer.name)[1])
        for at in sorted(rights, reverse=True):
            if at <= now and (self.tolerance is None or at >= now - self.tolerance):
                return [(element, rights[at])]
        return [(element, None)]


class Lookup(KeyedOperator):
    """Join of each left element with the right element of its key that is the latest in label
    order; it does not wait."""

    kind = "lookup"
    emits_many = True
    states = (ValueState[object]("right"),)

    def apply(self, context: Context, sided: Sided, right: ValueState[object]) -> list[Pair]:
        side, element = sided
        if side == RIGHT:
            right.set(element)
            return []
        return [(element, right.get())]

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[Any]
    ) -> list[object]:
        (side, element), [right] = cast(Sided, value), states
        if side == LEFT:
            return [(element, right.get(None))]
        right.set(element)
        return []


def pairs_of_window(alone: tuple[int, ...]) -> Callable[[dict[str, Any]], list[Pair]]:
    """Return the function that makes the pairs of a window, from a row with its `values`.

    `alone`: the sides whose elements leave if the window has no partner for them.
    """

    def pairs(row: dict[str, Any]) -> list[Pair]:
        sides: tuple[list[object], list[object]] = ([], [])
        for side, element in row["values"]:
            sides[side].append(element)
        lefts, rights = sides
        if lefts and rights:
            return [(left, right) for left in lefts for right in rights]
        return [_pair(side, element) for side in alone for element in sides[side]]

    return pairs


def broadcast_keys(copies: int) -> list[int]:
    """Return keys whose groups are evenly spread, so that nodes have equally many."""
    return [
        next(key for key in count() if group_of(key, copies) == place) for place in range(copies)
    ]


def tag_for_copy(keys: Sequence[int]) -> Callable[[object], tuple[int, int, object]]:
    """Return the function that assigns an element of the left stream to a copy of the table."""

    def tag(element: object) -> tuple[int, int, object]:
        try:
            return LEFT, keys[crc32(pack(element)) % len(keys)], element
        except PayloadError:  # the shuffle reports it
            return LEFT, keys[0], element

    return tag


def tag_for_copies(keys: Sequence[int]) -> Callable[[object], list[tuple[int, int, object]]]:
    """Return the function that sends a row of the right stream to all copies of the table."""
    return lambda row: [(RIGHT, key, row) for key in keys]


def with_table(
    function: Callable[[Any, Mapping[Any, Any]], Iterable[Any]], key: Callable[[Any], object]
) -> Callable[..., Iterable[Any]]:
    """Return the function of `process` that joins elements with a copy of a broadcast stream.

    It takes triples (side, key of the copy, element). `key`: of the rows of the right stream.
    """

    def apply(
        context: Context, sided: tuple[int, int, Any], table: MapState[object, object]
    ) -> Iterable[object]:
        side, _, element = sided
        if side == LEFT:
            return function(element, MappingProxyType(table))
        table[key(element)] = element
        return ()

    return apply


def _name(side: int, label: Label) -> str:
    """Return the name of the timer of an element."""
    return ",".join(map(str, (side, *label)))


def _place(name: str) -> tuple[int, Label]:
    """Return the side and the label of the element whose timer has a name."""
    side, *label = map(int, name.split(","))
    return side, tuple(label)
