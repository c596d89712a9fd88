"""Windowed operator: aggregates the elements of a key in windows of event time.

A window is complete once the watermark has reached its end plus the allowed lateness. Then the
operator emits the window's row and drops its state. An element whose windows are all complete is
*late*: it changes no row. An element between two hopping windows has no windows, and is not late.
The operator `Late` is the same, except that it emits the late elements instead of rows.

The state of a key is a map from the start of each open window to its end and its accumulators. Each
open window has a timer, named after its start. Hopping windows that overlap and emit no updates
share their accumulators: `engine.operators.hopping`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from driftline.engine.event_time import watermark_text
from driftline.engine.operators.aggregates import Accumulators, Aggregates
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.timers import TimedContext, Timer, Timers, is_due
from driftline.engine.operators.windows import Interval, Windows
from driftline.engine.state.managed import MapState, State

Row = dict[str, Any]
"""Output of a window: key, start, end, results of the aggregates and, with updates, preliminary."""

OpenWindows = MapState[int, tuple[int, Accumulators]]
"""Start of an open window -> (end, accumulators)."""

_Member = tuple[int, int, object]
"""(end of the window, event time, element); of the reference interpreter."""

_Elements = MapState[int, tuple[Accumulators, list[_Member]]]
"""Start of a window -> (accumulators, elements or the last of them); of the reference
interpreter."""

RESERVED = ("key", "start", "end", "preliminary")
"""Names of items of a row that no aggregate may have."""


@dataclass(frozen=True)
class Windowed(KeyedOperator):
    """Operator that emits a row per window and, if `emits_updates`, a row per change of a window.

    `lateness`: allowed lateness in microseconds.
    """

    windows: Windows
    lateness: int
    aggregates: Aggregates
    emits_updates: bool = False

    kind = "window"
    emits_many = True
    sets_event_times = True
    counts_late = True
    states = (MapState[int, tuple[int, Accumulators]]("windows"),)

    def apply(self, context: TimedContext, value: object, windows: OpenWindows) -> list[Any]:
        rows: list[Any] = []
        missed: list[Interval] = []
        assigned = self.windows.assign(context.event_time)
        for interval in assigned:
            start, end, merged = self._merge_interval(windows, interval)
            if end + self.lateness <= context.watermark:
                missed.append((start, end))
                continue
            if self._add(value, context.event_time, windows, start, end, merged, context.timers):
                context.timers.set(str(start), end + self.lateness)
            if self.emits_updates:
                row = self.row(context.key, start, end, windows[start][1], preliminary=True)
                rows.append((end - 1, row))
        if missed and len(missed) == len(assigned):
            return self.late(context, value, missed)
        return rows

    def absorb(
        self, value: Any, event_time: int, watermark: int, states: Sequence[Any], timers: Timers
    ) -> bool:
        if self.emits_updates:
            return False
        windows: OpenWindows = states[0]
        assigned = self.windows.assign(event_time)
        # The windows are in order, so the first one is complete first.
        if assigned and assigned[0][1] + self.lateness <= watermark:
            return False
        for interval in assigned:
            start, end = interval
            if not self.windows.merges and (window := windows.get(start)) is not None:
                # Most elements: `_add` would do the same, with more calls.
                windows[start] = end, self.aggregates.add(window[1], value, event_time)
                continue
            start, end, merged = self._merge_interval(windows, interval)
            if self._add(value, event_time, windows, start, end, merged, timers):
                timers.set(str(start), end + self.lateness)
        return True

    def _merge_interval(
        self, windows: OpenWindows, interval: Interval
    ) -> tuple[int, int, Sequence[int]]:
        """Return (start, end, merged) of the window that an element's interval becomes.

        `merged`: the starts of the open windows that become part of it.
        """
        start, end = interval
        if not self.windows.merges:
            return start, end, ()
        merged = self._touching(windows, start, end)
        for other_start in merged:
            start, end = min(start, other_start), max(end, windows[other_start][0])
        return start, end, merged

    def _add(
        self,
        value: object,
        event_time: int,
        windows: OpenWindows,
        start: int,
        end: int,
        merged: Sequence[int],
        timers: Timers,
    ) -> bool:
        """Add an element to a window, which replaces the windows that start at `merged`.

        Returns whether the window needs a timer, because it is new or has a new end.
        """
        existing = windows.get(start) if not merged or merged == [start] else None
        if existing is not None:
            accumulators = existing[1]
        elif merged:
            accumulators = self._pop_and_merge(windows, merged, timers)
        else:
            accumulators = self.aggregates.zeros()
        windows[start] = end, self.aggregates.add(accumulators, value, event_time)
        return existing is None or existing[0] != end

    def fire(self, context: TimedContext, timer: Timer, windows: OpenWindows) -> list[Any]:
        """Remove the window of a timer, which is complete, and return its row."""
        start = int(timer.name)
        if not is_due(context, timer, self._end_of(windows, start) + self.lateness):
            return []
        end, accumulators = self._pop_window(windows, start)
        return [(end - 1, self.row(context.key, start, end, accumulators))]

    def _end_of(self, windows: OpenWindows, start: int) -> int:
        return windows[start][0]

    def discard(self, timer: Timer, states: Sequence[Any]) -> None:
        states[0].pop(int(timer.name), None)

    def _pop_window(self, windows: OpenWindows, start: int) -> tuple[int, Accumulators]:
        """Remove an open window; return its end and its accumulators."""
        return windows.pop(start)

    def late(self, context: TimedContext, value: object, missed: list[Interval]) -> list[Any]:
        """Return the outputs for a late element: none. Counts the element."""
        context.count_late(context.label[0])
        return []

    def row(
        self,
        key: object,
        start: int,
        end: int,
        accumulators: Accumulators,
        *,
        preliminary: bool = False,
    ) -> Any:
        """Return the output for a window, with its start and end as text."""
        describe = self.windows.describe
        row: Row = {"key": key, "start": describe(start), "end": describe(end)}
        row.update(self.aggregates.results(accumulators))
        if self.emits_updates:
            row["preliminary"] = preliminary
        return row

    @staticmethod
    def _touching(windows: OpenWindows, start: int, end: int) -> list[int]:
        """Return the starts of the open windows that overlap or touch an interval, in order."""
        return [other for other in sorted(windows) if other <= end and windows[other][0] >= start]

    def _pop_and_merge(
        self, windows: OpenWindows, starts: Sequence[int], timers: Timers
    ) -> Accumulators:
        """Remove open windows and their timers; return their merged accumulators."""
        popped = []
        for start in starts:
            popped.append(windows.pop(start)[1])
            timers.cancel(str(start))
        return self.aggregates.merge(popped)

    @property
    def output_delay(self) -> int:
        return self.lateness

    def parameters(self) -> object:
        aggregates = self.aggregates.parameters()
        return self.windows.parameters(), self.lateness, aggregates, self.emits_updates

    def state_type(self, state: State) -> str:
        # The accumulators of a window are a tuple in the order of the aggregates, so this order is
        # part of the type. It is also part of the type of the state with the timers, because the
        # timers belong to the windows.
        windows = " ".join(map(str, self.windows.parameters()))
        return f"{super().state_type(state)} of {windows} ({self.aggregates})"

    # The same for the reference interpreter. It stores the elements of sessions, and adds all of
    # them to new accumulators at each element. Of another window it stores only the last element.

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        context = cast(TimedContext, context)
        elements = cast(_Elements, states[0])
        event_time, complete_until = context.event_time, context.watermark - self.lateness
        missed = []
        rows: list[object] = []
        for start, end in self.windows.assign(event_time):
            if self.windows.merges:
                start, end, members = _session(elements, start, end)
            else:
                members = list(elements[start][1]) if start in elements else []
            if end <= complete_until:
                missed.append((start, end))
                continue
            for other in [o for o in elements if self.windows.merges and start <= o < end]:
                del elements[other]
                context.timers.cancel(str(other))
            before = None
            if members and not self.windows.merges:
                before, members = elements[start][0], []
            members = [*members, (end, event_time, value)]
            accumulators = self._fold(members, before)
            elements[start] = accumulators, members
            context.timers.set(str(start), end + self.lateness)
            if self.emits_updates:
                row = self.row(context.key, start, end, accumulators, preliminary=True)
                rows.append((end - 1, row))
        if missed and len(missed) == len(self.windows.assign(event_time)):
            return self.late(context, value, missed)
        return rows

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        elements = cast(_Elements, states[0])
        start = int(timer.name)
        accumulators, members = elements[start]
        end = max(end for end, _, _ in members)
        if not is_due(cast(TimedContext, context), timer, end + self.lateness):
            return []
        del elements[start]
        return [(end - 1, self.row(context.key, start, end, accumulators))]

    def _fold(self, members: Sequence[_Member], before: Accumulators | None = None) -> Accumulators:
        """Return the accumulators of a window with these elements, added to those of `before`."""
        elements = [(event_time, value) for _, event_time, value in members]
        return self.aggregates.of_elements(elements, before)


@dataclass(frozen=True)
class Late(Windowed):
    """Operator that emits the elements that are late for windows, with the windows they missed.

    It does not count them: the operator of the rows does.
    """

    kind = "late"
    counts_late = False

    def late(self, context: TimedContext, value: object, missed: list[Interval]) -> list[Any]:
        describe = self.windows.describe
        late = {
            "record": value,
            "event_time": describe(context.event_time),
            "watermark": watermark_text(context.watermark),
            "windows": [[describe(start), describe(end)] for start, end in missed],
        }
        return [(context.event_time, late)]

    def fire(self, context: TimedContext, timer: Timer, windows: OpenWindows) -> list[Any]:
        start = int(timer.name)
        if is_due(context, timer, self._end_of(windows, start) + self.lateness):
            self._pop_window(windows, start)
        return []

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        super().fire_reference(vertex, context, timer, states)
        return []


def _session(elements: _Elements, start: int, end: int) -> tuple[int, int, list[_Member]]:
    """Return (start, end, members) of the session that a new element joins.

    `start`, `end`: the element's own interval. The members do not include the element.
    """
    members: list[_Member] = []
    for other in sorted(elements):
        other_members = elements[other][1]
        other_end = max(each for each, _, _ in other_members)
        if other <= end and other_end >= start:
            members += other_members
            start, end = min(start, other), max(end, other_end)
    return start, end, members


def drops_late(vertex: Vertex, vertices: Iterable[Vertex]) -> bool:
    """Return whether late elements of an operator are dropped: no `late` stream has them.

    `vertices`: all vertices of the flow.
    """
    return not any(_takes_late(v, vertex) for v in vertices if v.kind == Late.kind)


def _takes_late(late: Vertex, windowed: Vertex) -> bool:
    """Return whether the elements of vertex `late` are the late elements of a window operator."""
    late_operator, operator = late.operator, windowed.operator
    return (
        isinstance(late_operator, Windowed)
        and isinstance(operator, Windowed)
        and late.inputs == windowed.inputs
        and (late.key is windowed.key or not late_operator.windows.merges)
        and late_operator.lateness == operator.lateness
        and late_operator.windows.parameters() == operator.windows.parameters()
    )
