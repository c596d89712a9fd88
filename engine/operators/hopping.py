"""Windowed operator for hopping windows that overlap: they share the accumulators of their panes.

A *pane* is a maximal interval within which no window begins or ends, so all its elements are in the
same windows. The operator adds an element to its pane only. The row of a window merges the
accumulators of the window's panes.

The state of a key is a map from the start of each pane to its end and its accumulators. As with
other windows, each open window has a timer, named after its start. The first element of a pane sets
the timers of the open windows that contain the pane.

An element may enter a pane that an open window shares with a complete one. This does not change the
complete window, as its row was emitted before. A record moves the watermark at most to its own
event time, so no record completes a window that contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from driftline.engine.operators.aggregates import Accumulators
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.timers import TimedContext, Timer, Timers, is_due
from driftline.engine.operators.windowed import Late, OpenWindows, Windowed
from driftline.engine.operators.windows import Hopping
from driftline.engine.state.managed import MapState

_Member = tuple[int, int, object]
"""(end of the window, event time, element); of the reference interpreter."""


@dataclass(frozen=True)
class HoppingWindowed(Windowed):
    """Operator with one row per hopping window. It emits no updates."""

    windows: Hopping

    states = (MapState[int, tuple[int, Accumulators]]("panes"),)

    def apply(self, context: TimedContext, value: object, windows: OpenWindows) -> list[Any]:
        event_time, watermark = context.event_time, context.watermark
        if self.absorb(value, event_time, watermark, (windows,), context.timers):
            return []
        return self.late(context, value, self.windows.assign(event_time))

    def absorb(
        self, value: Any, event_time: int, watermark: int, states: Sequence[Any], timers: Timers
    ) -> bool:
        windows, complete_until = self.windows, watermark - self.lateness
        if windows.latest_start(event_time) + windows.size <= complete_until:
            return False
        start, end = windows.pane(event_time)
        if self._add(value, event_time, states[0], start, end, (), timers):
            self._set_timers(states[0], start, complete_until, timers)
        return True

    def _set_timers(
        self, panes: OpenWindows, start: int, complete_until: int, timers: Timers
    ) -> None:
        """Set the timers of the open windows whose only pane with elements is a new one.

        The pane's other open windows have their timers already. `start`: start of the pane;
        `complete_until`: windows that end at this time or earlier are complete.
        """
        size, every = self.windows.size, self.windows.every
        after_start, last_start = max(start, complete_until) - size, start
        for pane in dict.keys(panes):
            if pane < start:
                after_start = max(after_start, pane)
            elif pane > start:
                last_start = min(last_start, pane - size)
        first_start = self.windows.latest_start(after_start) + every
        for window_start in range(first_start, last_start + 1, every):
            timers.set(str(window_start), window_start + size + self.lateness)

    def _end_of(self, windows: OpenWindows, start: int) -> int:
        return start + self.windows.size

    def _pop_window(self, windows: OpenWindows, start: int) -> tuple[int, Accumulators]:
        """Return the end and the accumulators of a window.

        Removes the panes that no later window contains.
        """
        end, next_start = start + self.windows.size, start + self.windows.every
        panes = sorted([pane for pane in dict.keys(windows) if start <= pane < end])
        merged = self.aggregates.merge([windows[pane][1] for pane in panes])
        for pane in panes[:2]:  # at most two panes lie before the next window
            if pane < next_start:
                del windows[pane]
        return end, merged

    def discard(self, timer: Timer, states: Sequence[Any]) -> None:
        start = int(timer.name)
        for pane in sorted(states[0]):
            if start <= pane < start + self.windows.every:
                del states[0][pane]

    def discard_reference(self, timer: Timer, states: Sequence[Any]) -> None:
        states[0].pop(int(timer.name), None)

    # For the reference interpreter, without panes: each window keeps its elements.

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        context = cast(TimedContext, context)
        elements = cast(MapState[int, list[_Member]], states[0])
        assigned = self.windows.assign(context.event_time)
        members: list[_Member] = []
        for start, end in assigned:
            if end + self.lateness > context.watermark:
                members = elements.get(start, [])
                members = [*members, (end, context.event_time, value)]
                elements[start] = members
                context.timers.set(str(start), end + self.lateness)
        if not members:
            return self.late(context, value, assigned)
        # Raises what `absorb` raises when it adds the element to its pane.
        self._fold([each for each in members if self.windows.assign(each[1]) == assigned])
        return []

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        elements = cast(MapState[int, list[_Member]], states[0])
        start = int(timer.name)
        end = start + self.windows.size
        if not is_due(cast(TimedContext, context), timer, end + self.lateness):
            return []
        members = elements.pop(start)
        panes: dict[tuple[object, ...], list[_Member]] = {}  # windows of the pane -> members
        for member in members:
            panes.setdefault(tuple(self.windows.assign(member[1])), []).append(member)
        folded = [self._fold(panes[pane]) for pane in sorted(panes)]
        merged = self.aggregates.merge(folded)
        return [(end - 1, self.row(context.key, start, end, merged))]


@dataclass(frozen=True)
class HoppingLate(Late, HoppingWindowed):
    """Operator that emits the elements that are late for hopping windows, with these windows."""

    windows: Hopping
