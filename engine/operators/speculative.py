"""Speculative label order: apply elements at once, and undo them when an earlier one arrives.

This implements the drifting state model (design of FlameStream; Delivery, consistency, and
determinism, section V). An element with the largest label of its key so far is applied at once. If
an element is out of order, the operator undoes the later elements of its key, applies it, and
applies the others again. Tombstones retract outputs that changed.

Example: running totals. Element 100 belongs between 10 and 5, and arrives last:

    >>> from driftline.engine.flow.flow import Flow
    >>> from driftline.engine.state.managed import ReducingState
    >>> class Next:
    ...     def push(self, labels, values, signs):
    ...         for label, value, sign in zip(labels, values, signs or [1] * len(values)):
    ...             print(label, value if sign > 0 else f"{value} taken back")
    >>> flow = Flow("totals")
    >>> total = ReducingState("total", lambda a, b: a + b)
    >>> keyed = flow.source("numbers").key_by(lambda number: "all")
    >>> stream = keyed.scan(lambda number, total: total.add(number), total)
    >>> totals = Speculative(flow.vertices[-1], Next(), Failures(None))
    >>> totals.push([(1, 0)], [10], None)
    (1, 0) 10
    >>> totals.push([(3, 0)], [5], None)
    (3, 0) 15
    >>> totals.push([(2, 0)], [100], None)
    (2, 0) 110
    (3, 0) 15 taken back
    (3, 0) 115
    >>> totals.settle(4)  # no element below time 4 will come any more: nothing can be undone
    >>> totals.push([(4, 0)], [1], None)
    (4, 0) 116

An element is *in force* from its application until it is undone. Invariant: the states of a key
equal the settled state plus its elements in force, applied in label order; the outputs that were
sent and not retracted are the results of the elements in force.

Elements are stored per batch, in columns, in order of application. If a batch is later than all
earlier batches, no element in it is out of order, and order costs only this comparison. Otherwise
the operator searches the earlier batches for later elements of the same keys. An element that
arrives after k later elements of its key costs k undos, k + 1 applications, and one pass over the
batches that it precedes.
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
from driftline.engine.operators.steps import Failures, Signs, Step, Values
from driftline.engine.state.managed import MISSING, undo
from driftline.engine.state.values import canonical_argument, thaw_argument, thaw_output
from driftline.engine.texts import reraise_interrupt
from driftline.engine.wire.codec import canonical_bytes, is_a
from driftline.engine.wire.label_columns import Labels, times

_label_of = itemgetter(0)


class Speculative(Keyed):
    """Keyed operator in label order (example: see the module's docstring)."""

    def __init__(
        self,
        vertex: Vertex,
        after: Step,
        failures: Failures,
        record: bool = True,
        encoder: OutputEncoder | None = None,
    ) -> None:
        super().__init__(vertex, after, failures, record, encoder)
        self.batches: list[Applied] = []
        """Unsettled batches, in order of application."""
        self._open: list[Applied] = []
        """The batches of `batches` that are not closed (see `Applied`)."""
        self.last_time = -1
        """Largest time of an applied element."""
        self.closed = 0
        """No element with a smaller time may arrive any more."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        first = min(times(labels))
        assert first >= self.closed, (
            f"operator {self.vertex.name!r}: an element of time {first} after {self.closed} was "
            "closed"
        )
        self.elements += len(labels)
        kept, keys, values = self.prepare_batch(values)
        if signs is not None:
            self._correct(list(zip(labels, keys, kept, signs, strict=True)))
            return
        distinct_keys = set(keys)
        is_latest = first > self.last_time
        later_elements = {} if is_latest else self._applied_since(min(labels), distinct_keys)
        batch = Applied(labels, keys, kept)
        out_of_order: list[Arrived] = []
        if later_elements or len(distinct_keys) < len(keys):
            out_of_order = self._apply_in_turn(batch, later_elements, values)
        elif not self._apply_at_once(batch, values):
            out_of_order = self._apply_in_turn(
                batch, later_elements, list(map(thaw_argument, kept))
            )
        results = batch.results
        batch.results = self.frozen_results
        self._append(batch)
        self.emit(batch.labels, batch.keys, results)
        if out_of_order:
            self._correct(out_of_order)

    def _apply_at_once(self, batch: Applied, values: Values) -> bool:
        """Apply a batch with distinct keys and no late element: the hot path of the system.

        Returns False, with unchanged states, if the function raises, or if functions could still
        change the values that it stored or returned (`undo_if_unsafe`).
        """
        try:
            if self.apply is None:
                batch.results = list(map(self.call, batch.labels, batch.keys, values))
            else:
                states = map(self.table.__getitem__, batch.keys)
                batch.results = list(map(self.apply, values, states))
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
        """Apply the elements of a batch that are not late; remove and return the late ones.

        `later_elements`: per key, its elements in force from the batch's smallest label on.
        """
        on_time = self._try_in_turn(batch, later_elements, values)
        while self.undo_if_unsafe(batch.results):
            on_time = self._try_in_turn(
                batch, later_elements, list(map(thaw_argument, batch.values))
            )
        return batch.remove_late(on_time)

    def _try_in_turn(
        self,
        batch: Applied,
        later_elements: Mapping[object, list[tuple[Applied, int]]],
        values: Values,
    ) -> list[bool]:
        """Apply the elements that are not late. Returns per element whether it was applied."""
        call, apply, undo_log = self.call, self.apply, self.undo_log
        last = {key: found[-1][0].labels[found[-1][1]] for key, found in later_elements.items()}
        batch.results, batch.ends = [], []
        add_result, add_end = batch.results.append, batch.ends.append
        on_time: list[bool] = []
        elements = zip(batch.labels, batch.keys, values, strict=True)
        for (label, key, value), state in zip(
            elements, map(self.table.__getitem__, batch.keys), strict=True
        ):
            if last.get(key, label) > label:
                on_time.append(False)
                continue
            on_time.append(True)
            last[key] = label
            before = len(undo_log)
            try:
                add_result(call(label, key, value) if apply is None else apply(value, state))
            except BaseException as error:
                add_result(self.failed(key, value, error, before))
            add_end(len(undo_log))
        return on_time

    def _append(self, batch: Applied) -> None:
        """Add a batch that was just applied; its changes are in the undo log."""
        if batch.labels:
            self.last_time = max(self.last_time, batch.last_time)
            batch.undo_log = self.undo_log[:]
            self.undo_log.clear()
            self.batches.append(batch)
            self._open.append(batch)

    def _correct(self, arrived: list[Arrived]) -> None:
        """Insert late elements (sign +1) at their labels, and remove retracted ones (sign -1)."""
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
        """Return, per key, (batch, position) of its elements in force from a label on.

        They are in label order.
        """
        found: dict[object, list[tuple[Applied, int]]] = {}
        for batch in self.batches:
            if batch.last_time >= label[0]:
                for at, key in enumerate(batch.keys):
                    if key in keys and batch.labels[at] >= label and at not in batch.undone:
                        found.setdefault(key, []).append((batch, at))
        return found

    def _correct_key(
        self,
        key: object,
        arrived: list[Arrived],
        applied: list[tuple[Applied, int]],
        reapplied: Applied,
        out: _Corrections,
    ) -> None:
        """Insert or remove the elements of one key in `arrived`.

        Undoes the key's elements from the first label of `arrived` on, and applies them again with
        the inserted elements and without the removed ones. `applied`: the key's elements in force
        from some earlier label on, in label order. `reapplied` receives all elements that were
        applied here, `out` the outputs and tombstones to send.
        """
        first = min(arrived, key=_label_of)[0]
        entries: list[_Entry] = []
        for batch, at in reversed(applied):
            if batch.labels[at] < first:
                break
            undo(batch.changes(at))
            batch.undone.add(at)
            entries.append((batch.labels[at], batch.values[at], True, batch.results[at]))
        entries.reverse()
        for label, _, value, sign in arrived:
            if sign > 0:
                # Insert behind elements of the same label, whose tombstones may still follow.
                at = bisect_right(entries, label, key=_label_of)
                self.out_of_order += at < len(entries)
                entries.insert(at, (label, value, False, None))
                continue
            at = bisect_left(entries, label, key=_label_of)
            while (
                at < len(entries)
                and entries[at][0] == label
                and not _is_same_payload(entries[at][1], value)
            ):
                at += 1
            found = entries.pop(at) if at < len(entries) else None
            assert found is not None, f"a tombstone for {label}, which is not there"
            assert found[0] == label, f"a tombstone for {label}, with another payload"
            _, _, was_applied, before = found
            if was_applied:
                out.add(label, key, before, -1)
        for label, value, was_applied, before in entries:
            self.call_again(label, key, value)
            [kept] = self.frozen_results
            reapplied.add(label, key, value, kept, len(self.undo_log))
            if not was_applied:
                out.add(label, key, kept, 1)
                continue
            self.reapplied += 1
            out.replace(label, key, before, kept)
        self.table.perhaps_empty.append(key)

    def close(self, frontier: int) -> None:
        self.closed = max(self.closed, frontier)
        if self.record:
            left = []
            for batch in self._open:
                if batch.last_time < frontier:
                    batch.close(self.changelog)
                else:
                    left.append(batch)
            self._open = left

    def settle(self, frontier: int, exactly: bool = False) -> None:
        # Settle batches in order of application, so that the rows of a key enter the changelog in
        # label order.
        lost: list[object] = []
        done = 0
        while done < len(self.batches) and self.batches[done].last_time < frontier:
            lost += self._add_to_changelog(self.batches[done])
            done += 1
        del self.batches[:done]
        if exactly:
            left = []
            for batch in self.batches:
                if batch.last_time < frontier:
                    lost += self._add_to_changelog(batch)
                elif batch.chunk or min(times(batch.labels)) >= frontier:
                    left.append(batch)
                else:
                    below, others = batch.split(frontier)
                    lost += self.add_changes(below.final_changes())
                    left.append(others)
            self.batches = [batch for batch in left if batch.chunk or batch.labels]
        self._open = [batch for batch in self.batches if not batch.chunk]
        self.closed = max(self.closed, frontier)
        self.table.perhaps_empty += lost
        self._reclaim(frontier)

    def _reclaim(self, frontier: int) -> None:
        """Drop keys with empty states, once `perhaps_empty` is large enough.

        It must have more than twice as many entries as there are unsettled elements. Then most of
        its keys have no unsettled element, and each key is checked about twice, however often
        `settle` runs. Keys of elements that may still be undone stay: their changes refer to the
        states.
        """
        found = len(self.table.perhaps_empty)
        if found and found > 2 * sum(len(batch.keys) for batch in self.batches):
            self.table.reclaim({k for batch in self.batches for k in batch.keys_from(frontier)})

    def _add_to_changelog(self, batch: Applied) -> list[object]:
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
        changes = chain.from_iterable(batch.undo_log for batch in self.batches)
        return (state.key for state, _, _, new in changes if new is MISSING)


_Entry = tuple[Label, object, bool, object]
"""(label, payload, whether the element was applied before, its result at that time)."""


class _Corrections:
    """Tombstones and new outputs that late elements cause: those of the outputs that changed.

    `many`: a result is a list of outputs. An output that stays as it was is not sent again: the
    operators after this one would undo and repeat their work for it, and the operator of an
    iteration would do so again for each of its own messages, without an end in sight.
    """

    __slots__ = ("keys", "labels", "many", "outputs", "signs")

    def __init__(self, many: bool) -> None:
        self.many = many
        self.labels: list[Label] = []
        self.keys: list[object] = []
        self.outputs: Values = []
        self.signs: list[int] = []

    def add(self, label: Label, key: object, result: object, sign: int) -> None:
        """Add all outputs of a stored result."""
        for output_label, output in self._outputs(label, result):
            self._add_output(output_label, key, output, sign)

    def replace(self, label: Label, key: object, before: object, after: object) -> None:
        """Add the differences between two stored results."""
        old, new = dict(self._outputs(label, before)), dict(self._outputs(label, after))
        same = {at for at in old if at in new and _is_same_output(old[at], new[at])}
        for outputs, sign in ((old, -1), (new, 1)):
            for output_label, output in outputs.items():
                if output_label not in same:
                    self._add_output(output_label, key, output, sign)

    def _outputs(self, label: Label, result: object) -> list[tuple[Label, object]]:
        """Return the outputs of a result, or its failure, with their labels."""
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
