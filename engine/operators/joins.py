"""Joins of two streams: by interval, by window, as of an event time, by lookup, by broadcast.

Both streams enter one operator as pairs (side, element): side 0 is the left stream, 1 the right. An
output is a pair (left element, right element); None stands for a partner that does not exist. A
broadcast differs: its inputs are triples, and the user's function makes its outputs (`with_table`).

`apply_reference` and `fire_reference` are independent implementations of the same joins. The
reference interpreter runs them to check the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, cast
from zlib import crc32

from driftline.engine.errors import PayloadError
from driftline.engine.keygroups import group_of
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.timers import TimedContext, Timer, is_due
from driftline.engine.state.managed import MapState, State, ValueState
from driftline.engine.wire.codec import pack

LEFT, RIGHT = 0, 1
"""Sides of a join."""

HOW = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "outer": (LEFT, RIGHT)}
"""Kind of a join -> the sides whose elements are also emitted without a partner."""

Sided = tuple[int, object]
"""(side, element)"""

Pair = tuple[object, object]
"""(left element, right element); None in place of a missing one."""

_event_time = itemgetter(0)

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


def _count_if_late(context: TimedContext) -> None:
    """Count an element as late if the watermark has passed it: it may miss partners."""
    if context.event_time < context.watermark:
        context.count_late(context.label[0])


@dataclass(frozen=True)
class IntervalJoin(KeyedOperator):
    """Join of elements whose event times are close: lower_bound <= right - left <= upper_bound.

    `right` and `left` are the event times of the elements; bounds are in microseconds. An element
    is stored until the watermark has passed the event times of all possible partners. If it has had
    none by then and its side is in `outer_sides`, the join emits it without a partner. The event
    time of a pair is the larger one of its elements.
    """

    lower_bound: int
    upper_bound: int
    outer_sides: tuple[int, ...]

    kind = "join"
    emits_many = True
    sets_event_times = True
    counts_late = True
    states: ClassVar[tuple[State, ...]] = (
        MapState[Label, tuple[int, object, bool]]("left"),
        MapState[Label, tuple[int, object, bool]]("right"),
    )

    def apply(
        self, context: TimedContext, sided: Sided, lefts: Waiting, rights: Waiting
    ) -> list[tuple[int, Pair]]:
        side, element = sided
        event_time, mine = context.event_time, (lefts, rights)[side]
        others = (rights, lefts)[side]
        pairs = []
        for label in sorted(others):
            other_time, other, was_matched = others[label]
            if self._fits(side, event_time, other_time):
                pairs.append((max(event_time, other_time), _pair(side, element, other)))
                if not was_matched:
                    others[label] = other_time, other, True
        mine[context.label] = event_time, element, bool(pairs)
        context.timers.set(_timer_name(side, context.label), self._end(side, event_time))
        _count_if_late(context)
        return sorted(pairs, key=_event_time)

    def fire(
        self, context: TimedContext, timer: Timer, lefts: Waiting, rights: Waiting
    ) -> list[tuple[int, Pair]]:
        """Remove the element of a timer, which can find no partner any more.

        If it has had none and its side is in `outer_sides`, return it as a pair with None.
        """
        side, label = _element_of(timer.name)
        event_time, element, was_matched = (lefts, rights)[side][label]
        if not is_due(context, timer, self._end(side, event_time)):
            return []
        del (lefts, rights)[side][label]
        if was_matched or side not in self.outer_sides:
            return []
        return [(event_time, _pair(side, element))]

    def discard(self, timer: Timer, states: Sequence[Any]) -> None:
        side, label = _element_of(timer.name)
        states[side].pop(label, None)

    def _fits(self, side: int, event_time: int, other_time: int) -> bool:
        difference = other_time - event_time if side == LEFT else event_time - other_time
        return self.lower_bound <= difference <= self.upper_bound

    def _end(self, side: int, event_time: int) -> int:
        """Return the watermark from which every further partner of an element would be late."""
        return event_time + 1 + (self.upper_bound if side == LEFT else -self.lower_bound)

    @property
    def output_delay(self) -> int:
        return max([0, *(self._end(side, -1) for side in self.outer_sides)])

    def parameters(self) -> object:
        return self.lower_bound, self.upper_bound, self.outer_sides

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        context, (side, element) = cast(TimedContext, context), cast(Sided, value)
        stored = cast(list[Waiting], states)
        partners = [
            label
            for label, (other_time, _, _) in sorted(stored[1 - side].items())
            if self._fits(side, context.event_time, other_time)
        ]
        pairs: list[tuple[int, object]] = []
        for label in partners:
            other_time, other, _ = stored[1 - side][label]
            stored[1 - side][label] = other_time, other, True
            pair = (element, other) if side == LEFT else (other, element)
            later = other_time if other_time > context.event_time else context.event_time
            pairs.append((later, pair))
        stored[side][context.label] = context.event_time, element, len(partners) > 0
        context.timers.set(_timer_name(side, context.label), self._end(side, context.event_time))
        _count_if_late(context)
        return [*sorted(pairs, key=_event_time)]

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        side, label = _element_of(timer.name)
        stored = cast(list[Waiting], states)[side]
        event_time, element, matched = stored[label]
        if not is_due(cast(TimedContext, context), timer, self._end(side, event_time)):
            return []
        del stored[label]
        if matched or side not in self.outer_sides:
            return []
        return [(event_time, (element, None) if side == LEFT else (None, element))]


@dataclass(frozen=True)
class AsOfJoin(KeyedOperator):
    """Join of each left element with the latest right element as of the left one's event time.

    The right event time is the largest one that is not later than the left one. If it is more than
    `tolerance` microseconds earlier, the left element has no partner (None: no limit). Of right
    elements with equal event times, the last one in label order counts.

    A left element waits until the watermark has passed its event time. When a right element
    arrives, the join drops the right elements that only late left elements could still need. A left
    element may be made by a timer, such as the row of a window. It is processed with the record
    that moves the watermark past its event time, and it is not late. So the join uses
    `watermark_before`, the watermark before that record, to decide which right elements to keep.
    """

    tolerance: int | None

    kind = "as_of"
    emits_many = True
    sets_event_times = True
    counts_late = True
    states: ClassVar[tuple[State, ...]] = (
        MapState[Label, tuple[int, object, bool]]("left"),
        MapState[int, object]("right"),
    )

    def apply(
        self, context: TimedContext, sided: Sided, lefts: Waiting, rights: MapState[int, object]
    ) -> list[Pair]:
        side, element = sided
        event_time = context.event_time
        _count_if_late(context)
        if side == LEFT:
            lefts[context.label] = event_time, element, False
            context.timers.set(_timer_name(side, context.label), event_time + 1)
            return []
        rights[event_time] = element
        oldest_needed = min([context.watermark_before, *(at for at, _, _ in lefts.values())])
        candidates = [at for at in rights if at <= oldest_needed]
        for at in candidates:
            if at < max(candidates):
                del rights[at]
        return []

    def fire(
        self, context: TimedContext, timer: Timer, lefts: Waiting, rights: MapState[int, object]
    ) -> list[tuple[int, Pair]]:
        """Remove the left element of a timer; return it with its right element, or None."""
        event_time, element, _ = lefts.pop(_element_of(timer.name)[1])
        times = [at for at in rights if at <= event_time]
        if not times or (self.tolerance is not None and event_time - max(times) > self.tolerance):
            return [(event_time, (element, None))]
        return [(event_time, (element, rights[max(times)]))]

    def parameters(self) -> object:
        return (self.tolerance,)

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[Any]
    ) -> list[object]:
        context, (side, element) = cast(TimedContext, context), cast(Sided, value)
        _count_if_late(context)
        lefts, rights = states
        if side == LEFT:
            lefts[context.label] = context.event_time, element, False
            context.timers.set(_timer_name(side, context.label), context.event_time + 1)
        else:
            rights[context.event_time] = element
            oldest_needed = min([context.watermark_before] + [at for at, _, _ in lefts.values()])
            newest = max((at for at in rights if at <= oldest_needed), default=None)
            for at in [at for at in rights if newest is not None and at < newest]:
                del rights[at]
        return []

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[Any]
    ) -> list[object]:
        lefts, rights = states
        event_time, element, _ = lefts.pop(_element_of(timer.name)[1])
        for at in sorted(rights, reverse=True):
            if at <= event_time and (self.tolerance is None or at >= event_time - self.tolerance):
                return [(event_time, (element, rights[at]))]
        return [(event_time, (element, None))]


class Lookup(KeyedOperator):
    """Join of each left element with the last earlier right element of its key, in label order.

    Right elements that come later do not change the pair. Unlike Flink's lookup join, it reads no
    external table.
    """

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


def pairs_of_window(outer_sides: tuple[int, ...]) -> Callable[[dict[str, Any]], list[Pair]]:
    """Return a function that makes the pairs of a window from its row.

    The item `values` of the row is the list of (side, element) in the window. `outer_sides`: the
    sides whose elements are emitted if the window has no partner for them.
    """

    def pairs(row: dict[str, Any]) -> list[Pair]:
        sides: tuple[list[object], list[object]] = ([], [])
        for side, element in row["values"]:
            sides[side].append(element)
        lefts, rights = sides
        if lefts and rights:
            return [(left, right) for left in lefts for right in rights]
        return [_pair(side, element) for side in outer_sides for element in sides[side]]

    return pairs


def broadcast_keys(copies: int) -> list[int]:
    """Return a key for each copy of a table.

    The keys spread evenly over the hash space: cut into `copies` key groups, each group would hold
    one key. So nodes own nearly equal numbers of copies.
    """
    return [
        next(key for key in count() if group_of(key, copies) == group) for group in range(copies)
    ]


def tag_for_copy(keys: Sequence[int]) -> Callable[[object], tuple[int, int, object]]:
    """Return a function that assigns an element of the left stream to a copy of the table.

    The returned function makes (side, key of the copy, element).
    """

    def tag(element: object) -> tuple[int, int, object]:
        try:
            return LEFT, keys[crc32(pack(element)) % len(keys)], element
        except PayloadError:  # the shuffle reports the element as a failure
            return LEFT, keys[0], element

    return tag


def tag_for_copies(
    keys: Sequence[int], key_of: Callable[[Any], object]
) -> Callable[[object], list[tuple[int, int, object]]]:
    """Return a function that assigns a row of the right stream to all copies of the table.

    The returned function makes (side, key of the copy, (key, row)) for each copy. `key_of`: returns
    the key of a row.
    """

    def tag(row: object) -> list[tuple[int, int, object]]:
        row_with_key = key_of(row), row
        return [(RIGHT, key, row_with_key) for key in keys]

    return tag


def with_table(
    function: Callable[[Any, Mapping[Any, Any]], Iterable[Any]],
) -> Callable[..., Iterable[Any]]:
    """Return a function for `process` that updates a copy of the table and passes it to `function`.

    It takes the triples of `tag_for_copy` and `tag_for_copies`. It puts rows of the right stream
    into the table, and calls the user's `function` with each left element and the table.
    """

    def apply(
        context: Context, sided: tuple[int, int, Any], table: MapState[object, object]
    ) -> Iterable[object]:
        side, _, element = sided
        if side == LEFT:
            return function(element, MappingProxyType(table))
        key, row = element
        table[key] = row
        return ()

    return apply


def _timer_name(side: int, label: Label) -> str:
    """Return the name of the timer of an element."""
    return ",".join(map(str, (side, *label)))


def _element_of(name: str) -> tuple[int, Label]:
    """Return (side, label) of the element whose timer has this name."""
    side, *label = map(int, name.split(","))
    return side, tuple(label)
