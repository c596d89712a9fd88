"""Keyed operators that depend on event time: label order without speculation, and timers.

The watermark at a label is known once the event times of all records up to the label are known. So
such an operator waits until all elements below a time have arrived. Then it applies these elements
in label order. It never undoes anything. Between elements *timers* fire, each at the first root at
which the watermark reaches the timer's time. To the next stage the operator is like a source: it
emits outputs in label order, and promises that everything below a time has been emitted
(`TimedStep.done_below`).

The timers of a key are a state of the operator: a map from the timer's name to its time. Snapshots
and rescaling treat it like any other state.

Example: an alarm if a sensor is silent for 10 microseconds. The element of time 3 moves the
watermark to 112, past the timer at 110:

    >>> from driftline.engine.event_time import Clock, Watermark, timestamped
    >>> from driftline.engine.flow.flow import Flow
    >>> class Next:
    ...     def push(self, labels, values, signs):
    ...         print(*values)
    >>> def arm(context, reading):
    ...     context.timers.set("silent", context.event_time + 10)
    ...     return [reading]
    >>> def alarm(context, timer):
    ...     return [(context.key, "is silent at", timer.at)]
    >>> flow = Flow("alarms")
    >>> readings = flow.source("readings", event_time=lambda reading: reading[1], unit="us")
    >>> stream = readings.key_by(lambda reading: reading[0]).process(arm, on_timer=alarm)
    >>> clock = Clock([0])
    >>> step = TimedStep(flow.vertices[-1], Next(), FailureReporter(None), Watermark(clock, {0: 0}))
    >>> for time, reading in (1, ("a", 100)), (2, ("b", 105)), (3, ("b", 112)):
    ...     step.push([timestamped((time, 0), reading[1])], [reading], None)
    ...     clock.record(0, time, reading[1])
    >>> clock.complete(4)
    >>> step.apply_until(4)
    ('a', 100) ('b', 105) ('b', 112) ('a', 'is silent at', 110)
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from itertools import chain, count
from operator import itemgetter

from driftline.engine.event_time import (
    ENDED,
    TIMER_LIMIT,
    Watermark,
    event_time_of,
    is_fired,
    rank_of,
    timer_label,
)
from driftline.engine.keygroups import pack_key, plain_key
from driftline.engine.labels import Label
from driftline.engine.operators.applied import Applied
from driftline.engine.operators.context import Failure
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.speculative import Speculative
from driftline.engine.operators.steps import FailureReporter, Signs, Step, Values, collect_outputs
from driftline.engine.operators.timers import (
    EndlessTimers,
    TimedContext,
    Timer,
    Timers,
    expiry_timer,
    parse_expiry_timer,
)
from driftline.engine.state.managed import (
    ALL,
    ListState,
    MapState,
    State,
    ValueState,
    changes_of,
    ttl_of,
)
from driftline.engine.state.values import are_immutable, canonical_argument, thaw_argument
from driftline.engine.wire.codec import unpack
from driftline.engine.wire.label_columns import Labels

_label_of = itemgetter(0)

NO_OUTPUTS: Values = []
"""Result of an element without outputs."""


class TimedStep(Speculative):
    """Keyed step that applies elements and fires timers in label order, below the frontier.

    Example: see the module's docstring. The step never undoes an element that it has applied. It
    inherits the states, and the code that makes changes final.
    """

    def __init__(
        self,
        vertex: Vertex,
        next_step: Step,
        failures: FailureReporter,
        watermark: Watermark,
        keeps_changelog: bool = True,
        encoder: OutputEncoder | None = None,
    ) -> None:
        super().__init__(vertex, next_step, failures, keeps_changelog, encoder)
        assert vertex.on_timer is not None
        self.on_timer = vertex.on_timer
        self._expires = any(ttl_of(state) is not None for state in vertex.states)
        self.done_below = 0
        """Time below which all elements are applied, the due timers have fired, and the outputs of
        both are emitted."""
        self.too_late = 0
        """Number of elements that were too late for their windows."""
        self._late_times: list[int] = []
        """Times of the unsettled elements that `too_late` counts."""
        self._reported_late = 0
        """Value of `too_late` at the last call of `take_dropped`."""
        self.timer_count = 0
        """Number of timers that are set, of all keys. A window operator has one per open window."""
        self.watermark = watermark
        self._until = 0
        """Time below which the next `apply_taken` applies all elements."""
        self._ready: list[tuple[Label, object]] = []
        """(label, payload) of the elements for the next `apply_taken`."""
        self._waiting: list[tuple[Label, object, int]] = []
        """(label, payload, sign) of the elements that are not applied yet."""
        self._has_tombstones = False
        """Whether `_waiting` may contain tombstones."""
        self._due: list[tuple[int, int, object]] = []
        """Heap of (time, number, key). Each key with timers has an entry whose time is not later
        than the key's earliest timer. Outdated entries may follow it. The numbers, from `_numbers`,
        make entries comparable."""
        self._earliest: dict[object, int] = {}
        """Key -> a time that is not later than the key's earliest timer."""
        self._numbers = count()
        self._is_restored = False
        """Whether `_due` contains the timers of the restored states."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Keep elements until `apply_taken` applies them."""
        self.elements += len(labels)
        self._waiting += zip(labels, values, signs or [1] * len(labels), strict=True)
        self._has_tombstones |= signs is not None

    def take_dropped(self) -> int:
        """Return the number of elements too late for their windows since the last call."""
        dropped, self._reported_late = self.too_late - self._reported_late, self.too_late
        return dropped

    def late_before(self, time: int) -> int:
        """Return how many elements below a time were too late. Precondition: the step has not
        settled beyond `time`."""
        return self.too_late - sum(late_time >= time for late_time in self._late_times)

    def settle(self, frontier: int, exactly: bool = False) -> None:
        super().settle(frontier, exactly)
        self._late_times = [time for time in self._late_times if time >= frontier]

    def apply_until(self, frontier: int) -> None:
        """Apply all elements below a time, and fire the timers that are due (see `take`)."""
        self.take(frontier)
        self.apply_taken()

    def take(self, frontier: int, room: int = 1 << 62) -> tuple[list[Label], Values]:
        """Choose the elements that `apply_taken` applies next; return their labels and payloads.

        These are all elements below a time, which is at most the frontier, in label order. `room`:
        approximate maximum number of elements. Precondition: all elements below the frontier have
        arrived, and the clock is complete up to it.
        """
        self._until, self._ready = self._take_waiting(frontier, room)
        return [label for label, _ in self._ready], [value for _, value in self._ready]

    def apply_taken(self) -> None:
        """Apply the chosen elements, fire the timers between them, and send the outputs."""
        until, elements, self._ready = self._until, self._ready, []
        stored, keys, values = self.prepare_batch([value for _, value in elements])
        by_key: dict[object, list[int]] = {}
        for index, key in enumerate(keys):
            by_key.setdefault(key, []).append(index)
        watermark = self.watermark.before((until, -1))
        for key in self._keys_due(watermark):
            by_key.setdefault(key, [])
        labels = [label for label, _ in elements]
        counts_before = self.timer_count, self.too_late
        batch = self._apply_all(by_key, labels, values, watermark)
        while self.undo_if_unsafe(batch.results):
            del self._late_times[len(self._late_times) - self.too_late + counts_before[1] :]
            self.timer_count, self.too_late = counts_before
            for key in by_key:
                self._schedule(key)
            batch = self._apply_all(by_key, labels, list(map(thaw_argument, stored)), watermark)
        rows = zip(batch.labels, batch.keys, batch.results, strict=True)
        emitted = sorted([row for row in rows if row[2] is not NO_OUTPUTS], key=_label_of)
        batch.values = batch.results = [None] * len(batch.labels)  # nothing is ever undone
        self._append(batch)
        self.done_below = until
        if emitted:
            labels, keys, results = map(list, zip(*emitted, strict=True))
            if not self.emits_many:
                results = [r[0] if type(r) is list else r for r in results]
            self.emit(labels, keys, results)
        self.close(until)

    def _apply_all(
        self,
        by_key: dict[object, list[int]],
        labels: list[Label],
        values: Values,
        last_watermark: int,
    ) -> Applied:
        """Apply elements, and fire the timers up to a watermark, key by key.

        `by_key`: key -> the positions of its elements; `last_watermark`: the watermark after all
        elements.
        """
        batch = Applied([], [], [])
        watermarks = self.watermark.along(labels)
        function, absorb, earliest = self.function, self.vertex.operator.absorb, self._earliest
        undo_log, add_result = self.undo_log, self._add_result
        for key, positions in by_key.items():
            *states, set_timers = self.table.states(key)
            assert isinstance(set_timers, MapState)
            timers = Timers(set_timers, key, self._on_timer_change)
            last_root: Label = ()
            for position in positions:
                label, value = labels[position], values[position]
                root = label[:2]
                watermark_before, watermark = watermarks[position]
                if earliest.get(key, ENDED) <= watermark_before and root != last_root:
                    self._fire(key, last_root, watermark_before, batch)
                last_root = root
                if is_fired(label):
                    watermark = watermark_before
                timers.now = event_time = event_time_of(label)
                if self._expires and earliest.get(key, ENDED) <= event_time:
                    self._drop_expired(states, set_timers, event_time)
                changes_before = len(undo_log)
                result: object = NO_OUTPUTS
                try:
                    if not absorb(value, event_time, watermark, states, timers):
                        if self.emits_many:
                            context = TimedContext(
                                label,
                                plain_key(key),
                                event_time,
                                watermark,
                                watermark_before,
                                timers,
                                self._count_late,
                            )
                            outputs = function(context, value, *states)
                        else:
                            outputs = [function(value, *states)]
                        result = self._collected(key, outputs)
                        self._renew_expiries(timers, changes_before)
                except BaseException as error:
                    result = self.roll_back_failed_call(key, value, error, changes_before)
                add_result(batch, label, key, result)
            if earliest.get(key, ENDED) <= last_watermark:
                self._fire(key, last_root, last_watermark, batch)
        if batch.labels:
            batch.last_time = max(label[0] for label in batch.labels)
        return batch

    def freeze_results(self, results: Values) -> Values:
        """Return the same list if no function can change the results, else a copy of the list.

        A copy tells the caller that outputs are mutable. It does not freeze them, because this step
        stores no results.
        """
        outputs = [*chain.from_iterable(result for result in results if type(result) is list)]
        return results if are_immutable(outputs, self.encoder.functions_follow) else results[:]

    def _add_result(self, batch: Applied, label: Label, key: object, result: object) -> None:
        """Append an element that was applied, or a timer that was fired, to a batch."""
        assert isinstance(batch.labels, list)
        assert batch.ends is not None
        batch.labels.append(label)
        batch.keys.append(key)
        batch.results.append(result)
        batch.ends.append(len(self.undo_log))

    def _take_waiting(self, frontier: int, room: int) -> tuple[int, list[tuple[Label, object]]]:
        """Remove the next elements from `_waiting`, without those that tombstones retract.

        Returns (until, elements): the elements are all those below `until`, in label order.
        """
        waiting = self._waiting
        waiting.sort(key=_label_of)
        until = frontier
        if room < len(waiting):  # take all elements of a time or none, and at least one time
            until = min(frontier, max(waiting[room][0][0], waiting[0][0][0] + 1))
        cut = bisect_left(waiting, (until,), key=_label_of)
        taken, self._waiting = waiting[:cut], waiting[cut:]
        if not self._has_tombstones:
            return until, [(label, value) for label, value, _ in taken]
        self._has_tombstones = any(sign < 0 for _, _, sign in self._waiting)
        remaining: list[tuple[Label, object]] = []
        retracted: dict[tuple[Label, bytes], int] = {}
        for label, value, sign in taken:
            if sign < 0:
                identity = label, canonical_argument(value)
                retracted[identity] = retracted.get(identity, 0) + 1
        for label, value, sign in reversed(taken):
            identity = label, canonical_argument(value)
            if sign > 0 and retracted.get(identity):
                retracted[identity] -= 1
            elif sign > 0:
                remaining.append((label, value))
        assert not any(retracted.values()), "a tombstone for an element that has not arrived"
        return until, remaining[::-1]

    def _keys_due(self, watermark: int) -> list[object]:
        """Return the keys whose timers may fire up to a watermark; remove their `_due` entries."""
        if not self._is_restored:
            self._is_restored = True
            for key in self.table:
                self.timer_count += len(self._timers(key))
                self._schedule(key)
        keys = []
        while self._due and self._due[0][0] <= watermark:
            keys.append(heappop(self._due)[2])
        return keys

    def roll_back_failed_call(
        self, key: object, value: object, error: BaseException, changes_before: int
    ) -> Failure:
        timers = self._timers(key)
        count_before = len(timers)
        failure = super().roll_back_failed_call(key, value, error, changes_before)
        self.timer_count += len(timers) - count_before
        return failure

    def validate(self) -> None:
        super().validate()
        timers = sum(len(self._timers(key)) for key in self.table)
        assert self.timer_count == timers or not self._is_restored

    def _timers(self, key: object) -> MapState[str, int]:
        timers = self.table.states(key)[-1]
        assert isinstance(timers, MapState)
        return timers

    def _schedule(self, key: object) -> None:
        """Add the earliest timer of a key, if any, to `_earliest` and `_due`."""
        times = dict.values(self._timers(key)) if key in self.table else ()
        self._earliest.pop(key, None)
        if times:
            self._add_due(key, min(times))

    def _on_timer_change(self, key: object, at: int, change: int) -> None:
        self.timer_count += change
        if change >= 0:
            self._add_due(key, at)

    def _add_due(self, key: object, at: int) -> None:
        """Add a timer of a key to `_due`, if it is the earliest one of the key."""
        earliest = self._earliest.get(key)
        if earliest is None or at < earliest:
            self._earliest[key] = at
            heappush(self._due, (at, next(self._numbers), key))

    def _fire(self, key: object, last_root: Label, watermark: int, batch: Applied) -> None:
        """Fire the timers of a key up to a watermark, in the order of (time, name).

        `last_root`: root of the last element of the key in this call of `apply_taken`, or (). A
        timer that was due before this root fires at this root.
        """
        *states, timers = self.table.states(key)
        assert isinstance(timers, MapState)
        key_rank, user_key = rank_of(pack_key(key)), plain_key(key)
        previous_at, number = TIMER_LIMIT, 0
        endless = EndlessTimers() if self.vertex.operator.user_sets_timers else None
        while due := [(at, name) for name, at in dict.items(timers) if at <= watermark]:
            at, name = min(due)
            root = max(self.watermark.first_root(at), last_root)
            number = number + 1 if at == previous_at else 0
            previous_at = at
            label = timer_label(root, self.vertex.number, at, key_rank, number)
            watermark_at_root = self.watermark.at(root)
            del timers[name]
            self.timer_count -= 1
            changes_before = len(self.undo_log)
            if self._drop(states, name):
                self._add_result(batch, label, key, NO_OUTPUTS)
                continue
            user_timers = Timers(timers, key, self._on_timer_change, at, at + 1)
            try:
                if endless is not None and watermark_at_root == ENDED:
                    endless.check(name, len(timers))
                watermark_before = self.watermark.before(root)
                context = TimedContext(
                    label,
                    user_key,
                    at,
                    watermark_at_root,
                    watermark_before,
                    user_timers,
                    self._count_late,
                )
                result: object = self._collected(
                    key, self.on_timer(context, Timer(name, at), *states)
                )
                self._renew_expiries(user_timers, changes_before)
            except BaseException as error:
                result = self.roll_back_failed_call(key, (name, at), error, changes_before)
                self.vertex.operator.discard(Timer(name, at), states)
            self._add_result(batch, label, key, result)
        self._schedule(key)

    def _renew_expiries(self, timers: Timers, since: int) -> None:
        """Renew the expiry timers of changed values, and cancel those of removed values.

        `since`: the length of the undo log before these changes.
        """
        if not self._expires:
            return
        for state, slot, old, _ in changes_of(self.undo_log[since:]):
            if (ttl := ttl_of(state)) is None:
                continue
            if not isinstance(state, MapState):
                exists_by_timer = {expiry_timer(state.name): not state.is_empty()}
            else:
                slots = old if slot is ALL and isinstance(old, dict) else (slot,)
                keys = list(map(plain_key, slots))
                exists_by_timer = {
                    expiry_timer(state.name, pack_key(key)): key in state for key in keys
                }
            for name, exists in exists_by_timer.items():
                if exists:
                    timers.renew(name, ttl)
                else:
                    timers.cancel(name)

    def _drop_expired(
        self, states: list[State], timers: MapState[str, int], event_time: int
    ) -> None:
        """Drop the values whose time to live has passed at an event time, with their timers."""
        for at, name in sorted((at, name) for name, at in dict.items(timers)):
            if at <= event_time and self._drop(states, name):
                del timers[name]
                self.timer_count -= 1

    def _drop(self, states: list[State], timer: str) -> bool:
        """Drop the value of an expiry timer; return False for any other timer."""
        if (expiring := parse_expiry_timer(timer)) is None:
            return False
        name, item = expiring
        for state in states:
            if state.name == name and ttl_of(state) is not None:
                if isinstance(state, MapState):
                    state.pop(unpack(item), None)
                else:
                    assert isinstance(state, ValueState | ListState)
                    state.clear()
        return True

    def _collected(self, key: object, outputs: object) -> Values:
        """Return the outputs of a function as a list, copied if `copies_outputs`."""
        collected = outputs if type(outputs) is list else collect_outputs(outputs)
        if not collected:
            return NO_OUTPUTS
        return self._copy_outputs(key, collected) if self.copies_outputs else collected

    def _count_late(self, time: int) -> None:
        self.too_late += 1
        self._late_times.append(time)
