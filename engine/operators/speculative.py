"""Speculative label order: apply elements at once, and undo them when an earlier one arrives.

This implements the drifting state model (design of FlameStream; paper "Delivery, consistency, and
determinism", section V). An element with the largest label of its key so far is applied at once. If
an element is out of order, the operator undoes the later elements of its key, applies the new one,
and applies the later ones again. Tombstones retract outputs that changed.

Example: running totals. Element 100 belongs between 10 and 5, and arrives last:

    >>> from driftline.engine.flow.flow import Flow
    >>> from driftline.engine.state.managed import ReducingState
    >>> class Next:
    ...     def push(self, labels, values, signs):
    ...         for label, value, sign in zip(labels, values, signs or [1] * len(values)):
    ...             print(label, value if sign > 0 else f"{value} retracted")
    >>> flow = Flow("totals")
    >>> total = ReducingState("total", lambda a, b: a + b)
    >>> keyed = flow.source("numbers").key_by(lambda number: "all")
    >>> stream = keyed.scan(lambda number, total: total.add(number), total)
    >>> totals = Speculative(flow.vertices[-1], Next(), FailureReporter(None))
    >>> totals.push([(1, 0)], [10], None)
    (1, 0) 10
    >>> totals.push([(3, 0)], [5], None)
    (3, 0) 15
    >>> totals.push([(2, 0)], [100], None)
    (2, 0) 110
    (3, 0) 15 retracted
    (3, 0) 115
    >>> totals.settle(4)  # no element below time 4 will arrive any more: nothing can be undone
    >>> totals.push([(4, 0)], [1], None)
    (4, 0) 116

An element is *in force* from its application until it is undone. Invariant: the states of a key
equal the settled state plus its unsettled elements in force, applied in label order; the outputs
that were sent and not retracted are the results of the elements in force.

Elements are stored per batch, in columns, in order of application. If the times of a batch are
larger than all times so far, no applied element is later. If the keys in the batch are distinct,
too, this comparison is the whole cost of ordering. If some times are not larger, the operator
searches the applied batches for elements of the same keys with larger labels. An element that
arrives after k such elements costs k undos and k + 1 applications. Each batch with such an element
also costs at most two passes over the batches that contain larger labels.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping
from itertools import chain
from operator import itemgetter

from driftline.engine.labels import Label
from driftline.engine.operators.applied import Applied, Arrived
from driftline.engine.operators.context import Failure
from driftline.engine.operators.keyed import Keyed
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.steps import FailureReporter, Signs, Step, Values
from driftline.engine.state.managed import keys_of_removals, undo
from driftline.engine.state.values import canonical_argument, thaw_argument, thaw_output
from driftline.engine.texts import reraise_interrupt
from driftline.engine.wire.codec import canonical_bytes, is_a
from driftline.engine.wire.label_columns import Labels, times

_label_of = itemgetter(0)


class Speculative(Keyed):
    """Keyed step in label order, by speculation (example: see the module's docstring)."""

    def __init__(
        self,
        vertex: Vertex,
        next_step: Step,
        failures: FailureReporter,
        keeps_changelog: bool = True,
        encoder: OutputEncoder | None = None,
    ) -> None:
        super().__init__(vertex, next_step, failures, keeps_changelog, encoder)
        self.batches: list[Applied] = []
        """Unsettled batches, in order of application."""
        self._open: list[Applied] = []
        """The batches of `batches` that are not closed (see `Applied`)."""
        self.last_time = -1
        """Largest time of an applied element."""
        self.closed = 0
        """Time below which no element can arrive any more."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        min_time = min(times(labels))
        assert min_time >= self.closed, (
            f"operator {self.vertex.name!r}: an element of time {min_time} arrived, but times "
            f"below {self.closed} are closed"
        )
        self.elements += len(labels)
        payloads, keys, values = self.prepare_batch(values)
        if signs is not None:
            self._correct(list(zip(labels, keys, payloads, signs, strict=True)))
            return
        distinct_keys = set(keys)
        is_latest = min_time > self.last_time
        later_elements = {} if is_latest else self._applied_since(min(labels), distinct_keys)
        batch = Applied(labels, keys, payloads)
        out_of_order: list[Arrived] = []
        if later_elements or len(distinct_keys) < len(keys):
            out_of_order = self._apply_in_turn(batch, later_elements, values)
        elif not self._apply_at_once(batch, values):
            out_of_order = self._apply_in_turn(
                batch, later_elements, list(map(thaw_argument, payloads))
            )
        results = batch.results
        batch.results = self.frozen_results
        self._append(batch)
        self.emit(batch.labels, batch.keys, results)
        if out_of_order:
            self._correct(out_of_order)

    def _apply_at_once(self, batch: Applied, values: Values) -> bool:
        """Apply a batch with distinct keys and no out-of-order element: the system's hot path.

        Returns False, with unchanged states, if the function raises, or if user code could still
        change the values that the function stored or returned (`undo_if_unsafe`).
        """
        try:
            if self.direct_function is None:
                batch.results = list(map(self.call, batch.labels, batch.keys, values))
            else:
                states = map(self.table.__getitem__, batch.keys)
                batch.results = list(map(self.direct_function, values, states))
        except BaseException as error:
            reraise_interrupt(error)
            self.roll_back(0)
            return False
        if len(batch.results) < len(values):  # `map` ends if the function raises StopIteration
            self.roll_back(0)
            return False
        if self.undo_if_unsafe(batch.results):
            return False
        batch.ends = None  # `Applied.changes` can find the ends by key, as the keys are distinct
        return True

    def _apply_in_turn(
        self,
        batch: Applied,
        later_elements: Mapping[object, list[tuple[Applied, int]]],
        values: Values,
    ) -> list[Arrived]:
        """Apply the elements of a batch that are in order; remove and return the out-of-order ones.

        `later_elements`: per key, the elements in force from the batch's smallest label on, as
        (batch, position), in label order.
        """
        was_applied = self._try_in_turn(batch, later_elements, values)
        while self.undo_if_unsafe(batch.results):
            was_applied = self._try_in_turn(
                batch, later_elements, list(map(thaw_argument, batch.values))
            )
        return batch.remove_unapplied(was_applied)

    def _try_in_turn(
        self,
        batch: Applied,
        later_elements: Mapping[object, list[tuple[Applied, int]]],
        values: Values,
    ) -> list[bool]:
        """Apply the elements that are in order. Returns per element whether it was applied."""
        call, apply, undo_log = self.call, self.direct_function, self.undo_log
        latest: dict[object, Label] = {}
        for key, applied in later_elements.items():
            last_batch, position = applied[-1]
            latest[key] = last_batch.labels[position]
        batch.results, batch.ends = [], []
        add_result, add_end = batch.results.append, batch.ends.append
        was_applied: list[bool] = []
        elements = zip(batch.labels, batch.keys, values, strict=True)
        for (label, key, value), state in zip(
            elements, map(self.table.__getitem__, batch.keys), strict=True
        ):
            if latest.get(key, label) > label:
                was_applied.append(False)
                continue
            was_applied.append(True)
            latest[key] = label
            changes_before = len(undo_log)
            try:
                add_result(call(label, key, value) if apply is None else apply(value, state))
            except BaseException as error:
                add_result(self.roll_back_failed_call(key, value, error, changes_before))
            add_end(len(undo_log))
        return was_applied

    def _append(self, batch: Applied) -> None:
        """Add a batch that was just applied, and move its changes from the undo log into it."""
        if batch.labels:
            self.last_time = max(self.last_time, batch.last_time)
            batch.undo_log = self.undo_log[:]
            self.undo_log.clear()
            self.batches.append(batch)
            self._open.append(batch)

    def _correct(self, arrived: list[Arrived]) -> None:
        """Insert out-of-order elements (sign +1), and remove those that tombstones retract (-1)."""
        by_key: dict[object, list[Arrived]] = {}
        for element in arrived:
            by_key.setdefault(element[1], []).append(element)
        applied = self._applied_since(min(arrived, key=_label_of)[0], by_key)
        reapplied = Applied([], [], [])
        out = _Corrections(self.emits_many)
        for key, elements in by_key.items():
            self._correct_key(key, elements, applied.get(key, []), reapplied, out)
        self._append(reapplied)
        self.send_outputs(out.labels, out.keys, out.outputs, out.signs)

    def _applied_since(
        self, label: Label, keys: Container[object]
    ) -> dict[object, list[tuple[Applied, int]]]:
        """Return, per key, (batch, position) of the elements in force from a label on.

        The elements of a key are in label order.
        """
        by_key: dict[object, list[tuple[Applied, int]]] = {}
        for batch in self.batches:
            if batch.last_time >= label[0]:
                for i, key in enumerate(batch.keys):
                    if key in keys and batch.labels[i] >= label and i not in batch.undone:
                        by_key.setdefault(key, []).append((batch, i))
        return by_key

    def _correct_key(
        self,
        key: object,
        arrived: list[Arrived],
        applied: list[tuple[Applied, int]],
        reapplied: Applied,
        out: _Corrections,
    ) -> None:
        """Insert and remove the elements of one key that `arrived` names.

        Undoes the key's elements from the smallest label in `arrived` on, and applies them again,
        with the inserted elements and without the removed ones. `applied`: (batch, position) of the
        key's elements in force from this label or an earlier one on, in label order. `reapplied`
        receives all elements that are applied here, `out` the outputs and tombstones to send.
        """
        min_label = min(arrived, key=_label_of)[0]
        entries: list[_Entry] = []
        for batch, position in reversed(applied):
            if batch.labels[position] < min_label:
                break
            undo(batch.changes(position))
            batch.undone.add(position)
            value, old_result = batch.values[position], batch.results[position]
            entries.append((batch.labels[position], value, True, old_result))
        entries.reverse()
        for label, _, value, sign in arrived:
            if sign > 0:
                # Insert behind elements of the same label: their tombstones may still arrive.
                position = bisect_right(entries, label, key=_label_of)
                self.out_of_order += position < len(entries)
                entries.insert(position, (label, value, False, None))
                continue
            position = bisect_left(entries, label, key=_label_of)
            while (
                position < len(entries)
                and entries[position][0] == label
                and not _is_same_payload(entries[position][1], value)
            ):
                position += 1
            removed = entries.pop(position) if position < len(entries) else None
            assert removed is not None, f"a tombstone for {label}, where no element is"
            assert removed[0] == label, f"a tombstone for {label}, with another payload"
            _, _, was_applied, old_result = removed
            if was_applied:
                out.add(label, key, old_result, -1)
        for label, value, was_applied, old_result in entries:
            self.call_until_safe(label, key, value)
            [result] = self.frozen_results
            reapplied.add(label, key, value, result, len(self.undo_log))
            if not was_applied:
                out.add(label, key, result, 1)
                continue
            self.reapplied += 1
            out.replace(label, key, old_result, result)
        self.table.perhaps_empty.append(key)

    def close(self, frontier: int) -> None:
        self.closed = max(self.closed, frontier)
        if self.keeps_changelog:
            still_open = []
            for batch in self._open:
                if batch.last_time < frontier:
                    batch.close(self.changelog)
                else:
                    still_open.append(batch)
            self._open = still_open

    def settle(self, frontier: int, exactly: bool = False) -> None:
        # Settle batches in order of application, so that the rows of a key enter the changelog in
        # label order.
        keys_with_removals: list[object] = []
        settled = 0
        while settled < len(self.batches) and self.batches[settled].last_time < frontier:
            keys_with_removals += self._add_to_changelog(self.batches[settled])
            settled += 1
        del self.batches[:settled]
        if exactly:
            unsettled = []
            for batch in self.batches:
                if batch.last_time < frontier:
                    keys_with_removals += self._add_to_changelog(batch)
                elif batch.chunk or min(times(batch.labels)) >= frontier:
                    unsettled.append(batch)
                else:
                    below, above = batch.split(frontier)
                    keys_with_removals += self.add_changes(below.final_changes())
                    unsettled.append(above)
            self.batches = [batch for batch in unsettled if batch.chunk or batch.labels]
        self._open = [batch for batch in self.batches if not batch.chunk]
        self.closed = max(self.closed, frontier)
        self.table.perhaps_empty += keys_with_removals
        self._reclaim(frontier)

    def _reclaim(self, frontier: int) -> None:
        """Drop keys with empty states, if `perhaps_empty` is large enough.

        It is large enough if it has more than twice as many keys as there are unsettled elements.
        At least half of its keys then have no unsettled element, and leave it in this call. So each
        key is checked about twice, however often `settle` runs. Keys of elements that may still be
        undone stay in the table, as the undo log refers to their states.
        """
        candidate_count = len(self.table.perhaps_empty)
        if candidate_count and candidate_count > 2 * sum(len(batch.keys) for batch in self.batches):
            self.table.reclaim({k for batch in self.batches for k in batch.keys_from(frontier)})

    def _add_to_changelog(self, batch: Applied) -> list[object]:
        """Add a batch's final changes to the changelog. Returns the keys with removals."""
        if batch.chunk:
            self.changelog.add(batch.chunk)
            return []
        return self.add_changes(batch.final_changes())

    def validate(self) -> None:
        super().validate()
        latest: dict[object, Label] = {}
        for batch in self.batches:
            assert batch.chunk or batch.last_time == max(times(batch.labels))
            for at in batch.in_force():
                label, key = batch.labels[at], batch.keys[at]
                assert latest.get(key, ()) <= label, f"key {key!r}: {label} after {latest[key]}"
                latest[key] = label
        assert all(batch.last_time <= self.last_time for batch in self.batches)

    def keys_with_removals(self) -> Iterable[object]:
        return chain.from_iterable(keys_of_removals(batch.undo_log) for batch in self.batches)


_Entry = tuple[Label, object, bool, object]
"""(label, payload, whether the element was applied before this correction, its result then)."""


class _Corrections:
    """Tombstones and new outputs of a correction, only for the outputs that change.

    An unchanged output is not sent again, because the next operators would undo and repeat their
    work for it. An iterating operator would do so for its own messages, perhaps without end.

    `many`: whether a result is a list of outputs.
    """

    __slots__ = ("keys", "labels", "many", "outputs", "signs")

    def __init__(self, many: bool) -> None:
        self.many = many
        self.labels: list[Label] = []
        self.keys: list[object] = []
        self.outputs: Values = []
        self.signs: list[int] = []

    def add(self, label: Label, key: object, result: object, sign: int) -> None:
        """Add all outputs of a stored result, or with sign -1 their tombstones."""
        for output_label, output in self._outputs(label, result):
            self._add_output(output_label, key, output, sign)

    def replace(self, label: Label, key: object, before: object, after: object) -> None:
        """Add tombstones for the old outputs that differ, and add the new outputs that differ."""
        old, new = dict(self._outputs(label, before)), dict(self._outputs(label, after))
        unchanged = {k for k in old if k in new and _is_same_output(old[k], new[k])}
        for outputs, sign in ((old, -1), (new, 1)):
            for output_label, output in outputs.items():
                if output_label not in unchanged:
                    self._add_output(output_label, key, output, sign)

    def _outputs(self, label: Label, result: object) -> list[tuple[Label, object]]:
        """Return (label, output) for each output of a stored result; a failure is one output."""
        if self.many and type(result) is list:
            return [((*label, i), output) for i, output in enumerate(result)]
        return [(label, result)]

    def _add_output(self, label: Label, key: object, output: object, sign: int) -> None:
        self.labels.append(label)
        self.keys.append(key)
        self.outputs.append(thaw_output(output))
        self.signs.append(sign)


def _is_same_payload(one: object, other: object) -> bool:
    """Return whether two stored payloads are the same; 1, 1.0 and True differ."""
    return canonical_argument(one) == canonical_argument(other)


def _is_same_output(one: object, other: object) -> bool:
    """Return whether two stored outputs encode to the same bytes; 1, 1.0 and True differ."""
    if is_a(one, Failure) or is_a(other, Failure):
        return one == other
    return canonical_bytes(thaw_output(one)) == canonical_bytes(thaw_output(other))
