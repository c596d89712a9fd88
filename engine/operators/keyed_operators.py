"""Keyed operators: scan and process, which take a user function, and distinct and top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from driftline.engine.errors import FlowError
from driftline.engine.operators.aggregates import check_order
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.steps import collect_outputs
from driftline.engine.operators.timers import TimedContext, Timer, Timers
from driftline.engine.state.managed import MapState, ValueState


class Scan(KeyedOperator):
    """Operator with one output per element."""

    kind = "scan"
    takes_function = True

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return [vertex.function(value, *states)]


class Process(KeyedOperator):
    """Operator with any number of outputs per element; the function sees the label and the key."""

    kind = "process"
    takes_function = True
    emits_many = True
    user_sets_timers = True

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return collect_outputs(vertex.function(context, value, *states))

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        assert vertex.on_timer is not None
        return collect_outputs(vertex.on_timer(context, timer, *states))


class Distinct(KeyedOperator):
    """Operator that passes the first element of each key, and drops later ones."""

    kind = "distinct"
    emits_many = True
    states = (ValueState[bool]("seen"),)

    def apply(self, context: Context, value: object, seen: ValueState[bool]) -> Sequence[object]:
        if seen.get(False):
            return ()
        seen.set(True)
        return (value,)

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        [seen] = states
        assert isinstance(seen, ValueState)
        is_first = seen.get() is None
        seen.set(True)
        return [value] if is_first else []


@dataclass(frozen=True)
class RunningTop(KeyedOperator):
    """Operator that keeps, for each key, the `number` elements with the largest values of `by`.

    It emits them, largest first, each time they change. Of equal values, the first one in label
    order counts as larger.

    Raises FlowError if `number` is not a positive int.
    """

    number: int
    by: Callable[[Any], Any]

    kind = "top"
    emits_many = True
    states = (ValueState[tuple[object, ...]]("top"),)

    def __post_init__(self) -> None:
        if type(self.number) is not int or self.number < 1:
            raise FlowError(f"top({self.number!r}): give the number of elements, at least 1")

    def apply(
        self, context: Context, value: object, best: ValueState[tuple[object, ...]]
    ) -> Sequence[object]:
        check_order(self.by(value), self.kind)
        old_top = best.get(())
        ranked = sorted((*old_top, value), key=self.by, reverse=True)  # stable
        if len(ranked) > self.number and ranked.pop() is value:
            return ()
        best.set(tuple(ranked))
        return ({"key": context.key, "top": ranked},)

    def parameters(self) -> object:
        return self.number, self.by

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[Any]
    ) -> list[object]:
        [best] = states
        rank = self.by(value)
        check_order(rank, self.kind)
        old_top = list(best.get([]))
        position = len([other for other in reversed(old_top) if not self.by(other) < rank])
        if position >= self.number:
            return []
        new_top = [*old_top[:position], value, *old_top[position:]][: self.number]
        best.set(new_top)
        return [{"key": context.key, "top": new_top}]


Passed = MapState[int, bool]
"""Event times of the elements that passed, until the watermark is `ttl` later. All values are
True."""


@dataclass(frozen=True)
class DistinctInTime(KeyedOperator):
    """Operator that drops an element if one of the same key and a close event time has passed.

    Event times are close if they differ by less than `ttl` microseconds. The operator forgets an
    element once the watermark is `ttl` ahead of the element's event time. From then on, only late
    elements can be close to it. The operator no longer drops them.
    """

    ttl: int

    kind = "distinct"
    emits_many = True
    states = (MapState[int, bool]("passed"),)

    def apply(self, context: TimedContext, value: object, passed: Passed) -> Sequence[object]:
        if self._is_repeated(context.event_time, passed):
            return ()
        passed[context.event_time] = True
        context.timers.set(str(context.event_time), context.event_time + self.ttl)
        return (value,)

    def absorb(
        self, value: Any, event_time: int, watermark: int, states: Sequence[Any], timers: Timers
    ) -> bool:
        return self._is_repeated(event_time, states[0])

    def fire(self, context: TimedContext, timer: Timer, passed: Passed) -> Sequence[object]:
        """Forget an element."""
        del passed[int(timer.name)]
        return ()

    def _is_repeated(self, event_time: int, passed: Passed) -> bool:
        return any(abs(event_time - at) < self.ttl for at in passed)

    def parameters(self) -> object:
        return (self.ttl,)

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        context, [passed] = cast(TimedContext, context), cast(list[Passed], states)
        event_time = context.event_time
        if [at for at in passed if event_time - self.ttl < at < event_time + self.ttl]:
            return []
        passed[event_time] = True
        context.timers.set(str(event_time), event_time + self.ttl)
        return [value]

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        cast(list[Passed], states)[0].pop(int(timer.name))
        return []
