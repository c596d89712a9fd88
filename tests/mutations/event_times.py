"""Event time without a safeguard: wrong watermarks and timer order, lost window state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from driftline.engine.event_time import IDLE, NEVER, RESUMED, Clock, SourceTime, Watermark
from driftline.engine.labels import Label
from driftline.engine.operators import steps, timed
from driftline.engine.operators.joins import IntervalJoin
from driftline.engine.operators.timed import TimedStep
from driftline.engine.operators.timers import TimedContext, parse_expiry_timer
from driftline.engine.operators.windowed import OpenWindows, Windowed


def watermark_is_that_of_one_source() -> AbstractContextManager[object]:
    """Let the watermark of an operator ignore all but one of its sources."""
    init = Watermark.__init__

    def mutated(self: Watermark, clock: Clock, fronts: Mapping[int, int]) -> None:
        init(self, clock, dict([*fronts.items()][:1]))

    return patch.object(Watermark, "__init__", mutated)


def timers_fire_in_the_wrong_order() -> AbstractContextManager[object]:
    """Fire the last of several due timers of a key first."""

    def mutated(*values: Any) -> Any:
        is_due = len(values) == 1 and isinstance(values[0], list) and type(values[0][0]) is tuple
        return max(values[0]) if is_due else min(*values)

    return patch.object(timed, "min", mutated, create=True)


def late_elements_enter_closed_windows() -> AbstractContextManager[object]:
    """Let late elements open their complete windows again."""
    apply = Windowed.apply

    def mutated(
        self: Windowed, context: TimedContext, value: object, windows: OpenWindows
    ) -> list[Any]:
        context.watermark = NEVER
        return apply(self, context, value, windows)

    return patch.object(Windowed, "apply", mutated)


def sessions_are_not_merged() -> AbstractContextManager[object]:
    """Begin a session with each element of a key."""
    return patch.object(Windowed, "_touching", staticmethod(lambda windows, start, end: []))


def event_times_are_lost_in_snapshots() -> AbstractContextManager[object]:
    """Restore clocks from snapshots without any recorded event time."""
    restore = Clock.restore

    def mutated(self: Clock, state: Iterable[tuple[int, int]], time: int) -> None:
        restore(self, [], time)

    return patch.object(Clock, "restore", mutated)


def idle_sources_hold_back_the_watermark() -> AbstractContextManager[object]:
    """Ignore that a source is idle."""
    after = Clock._after

    def mutated(self: Clock, front: int, source: SourceTime, event_time: int) -> SourceTime:
        return source if event_time == IDLE else after(self, front, source, event_time)

    return patch.object(Clock, "_after", mutated)


def resumed_source_stays_idle() -> AbstractContextManager[object]:
    """Never let a source that was idle hold back a watermark again."""
    after = Clock._after

    def mutated(self: Clock, front: int, source: SourceTime, event_time: int) -> SourceTime:
        return source if event_time == RESUMED else after(self, front, source, event_time)

    return patch.object(Clock, "_after", mutated)


def values_outlive_their_ttl() -> AbstractContextManager[object]:
    """Ignore the timers of values with a time to live."""
    return patch.object(
        TimedStep, "_drop", lambda self, states, timer: parse_expiry_timer(timer) is not None
    )


def unmatched_elements_of_joins_are_lost() -> AbstractContextManager[object]:
    """Emit nothing for elements of a join that have no partner."""
    fire = IntervalJoin.fire

    def mutated(self: IntervalJoin, *arguments: Any) -> list[Any]:
        fire(self, *arguments)
        return []

    return patch.object(IntervalJoin, "fire", mutated)


def watermarks_ignore_the_delay_of_outputs() -> AbstractContextManager[object]:
    """Let the watermark of an operator not lag behind those of the windows before it."""
    init = Watermark.__init__

    def mutated(self: Watermark, clock: Clock, fronts: Mapping[int, int]) -> None:
        init(self, clock, dict.fromkeys(fronts, 0))

    return patch.object(Watermark, "__init__", mutated)


def rows_have_the_event_time_of_their_timer() -> AbstractContextManager[object]:
    """Ignore the event times that rows of windows and pairs of joins have of their own."""

    def mutated(label: Label, event_time: int, number: int) -> Label:
        return (*label, number)

    return patch.object(steps, "output_label", mutated)
