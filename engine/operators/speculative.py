"""Label order by speculation: an element is applied at once, and undone when an earlier one comes.

This is the drifting state of the model (design of FlameStream; Delivery, consistency, and
determinism, section V). An element that has the largest label of its key so far is applied at once.
An element that comes late is put in its place: the later elements of its key are undone, it is
applied, and they are applied again. Outputs that have changed are taken back by tombstones.

An example: running totals. Element 100 comes late, between 10 and 5:

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

An element is *in force* from when it is applied until it is undone. Invariant: the states of a key
are what its elements in force make of the settled state, applied in label order; and the outputs
that were sent and not taken back are the results of the elements in force.

Elements are kept batch by batch, in columns, in the order in which they were applied. Only a batch
that is not later than all others makes the operator look for elements of its keys. So order costs
one comparison per batch as long as nothing comes late. Cost of an element that is late by k
elements of its key: 2k + 1 applications, and one pass over the batches that it is earlier than.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping
from itertools import chain
from operator import itemgetter

from driftline.engine.labels import Label
from driftline.engine.operators.applied import Applied, Arrived
from driftline.engine.operators.context import Failure
from driftline.engine.operators.ends import OutputEncoder
from driftline.engine.operators.keyed import Keyed
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import Failures, Signs, Step, Values
from driftline.engine.state.managed import MISSING, undo
from driftline.engine.state.values import exactly, fresh, output
from driftline.engine.texts import let_through
from driftline.engine.wire.codec import exact, is_a
from driftline.engine.wire.label_columns import Labels, times

_label_of = itemgetter(0)


class Speculative(Keyed):
    """A keyed operator in label order (see the module's docstring for an example)."""

    def __init__(
        self,
        vertex: Vertex,
        after: Step,
        failures: Failures,
        record: bool = True,
        maker: OutputEncoder | None = None,
    ) -> None:
        super().__init__(vertex, after, failures, record, maker)
        self.batches: list[Applied] = []
        """Batches that are not settled, in the order in which they were applied."""
        self._open: list[Applied] = []
        """The batches in `batches` that are not closed."""
        self.last = -1
        """The largest time of all elements so far."""
        self.closed = 0
        """Precondition of `push`: no element has a smaller time than this."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        first = min(times(labels))
        assert first >= self.closed, (
            f"operator {self.vertex.name!r}: an element of time {first} after {self.closed} was "
            "closed"
        )
        self.elements += len(labels)
        kept, keys, values = self.arrived(values)
        if signs is not None:
            self._correct(list(zip(labels, keys, kept, signs, strict=True)))
            return
        different = set(keys)
        is_latest = first > self.last
        since = {} if is_latest else self._applied_since(min(labels), different)
        batch = Applied(labels, keys, kept)
        late: list[Arrived] = []
        if since or len(different) < len(keys):
            late = self._apply_in_turn(batch, since, values)
        elif not self._apply_at_once(batch, values):
            late = self._apply_in_turn(batch, since, list(map(fresh, kept)))
        results = batch.results
        batch.results = self.given
        self._append(batch)
        self.emit(batch.labels, batch.keys, results, None)
        if late:
            self._correct(late)

    def _apply_at_once(self, batch: Applied, values: Values) -> bool:
        """Apply a batch whose keys all differ, with no late element: the hot path of the system.

        Returns False if the function raises, or if its changes cannot be kept as they are; then
        the states are as before the call.
        """
        try:
            if self.apply is None:
                batch.results = list(map(self.call, batch.labels, batch.keys, values))
            else:
                states = map(self.table.__getitem__, batch.keys)
                batch.results = list(map(self.apply, values, states))
        except BaseException as error:
            let_through(error)
            self.take_back(0)
            return False
        if len(batch.results) < len(values):  # `map` takes StopIteration for its own end
            self.take_back(0)
            return False
        if self.begins_again(batch.results):
            return False
        batch.ends = None  # the keys all differ, so `Applied.changes` can find the ends by key
        return True

    def _apply_in_turn(
        self,
        batch: Applied,
        since: Mapping[object, list[tuple[Applied, int]]],
        values: Values,
    ) -> list[Arrived]:
        """Apply the elements of a batch that are not late.

        `since`: for each key its elements in force that are later than the batch's first label.
        Returns the late elements, which are removed from the batch.
        """
        on_time = self._try_in_turn(batch, since, values)
        while self.begins_again(batch.results):
            on_time = self._try_in_turn(batch, since, list(map(fresh, batch.values)))
        return batch.without_late(on_time)

    def _try_in_turn(
        self,
        batch: Applied,
        since: Mapping[object, list[tuple[Applied, int]]],
        values: Values,
    ) -> list[bool]:
        """Apply the elements that are not late. Returns for each element whether it was applied."""
        call, apply, undo_log = self.call, self.apply, self.undo_log
        last = {key: found[-1][0].labels[found[-1][1]] for key, found in since.items()}
        batch.results, batch.ends = [], []
        note, end = batch.results.append, batch.ends.append
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
                note(call(label, key, value) if apply is None else apply(value, state))
            except BaseException as error:
                note(self.failed(key, value, error, before))
            end(len(undo_log))
        return on_time

    def _append(self, batch: Applied) -> None:
        """Add a batch that has just been applied; its changes are in the undo log."""
        if batch.labels:
            self.last = max(self.last, batch.last)
            batch.undo_log = self.undo_log[:]
            self.undo_log.clear()
            self.batches.append(batch)
            self._open.append(batch)

    def _correct(self, arrived: list[Arrived]) -> None:
        """Insert late elements (sign +1) at their labels, and remove elements (sign -1)."""
        by_key: dict[object, list[Arrived]] = {}
        for element in arrived:
            by_key.setdefault(element[1], []).append(element)
        applied = self._applied_since(min(arrived, key=_label_of)[0], by_key)
        again = Applied([], [], [])
        out = _Corrections()
        for key, elements in by_key.items():
            self._correct_key(key, elements, applied.get(key, []), again, out)
        self._append(again)
        self.emit(out.labels, out.keys, out.results, out.signs)

    def _applied_since(
        self, label: Label, keys: Container[object]
    ) -> dict[object, list[tuple[Applied, int]]]:
        """Per key, (batch, position) of its elements in force from a label on, in label order."""
        found: dict[object, list[tuple[Applied, int]]] = {}
        for batch in self.batches:
            if batch.last >= label[0]:
                for at, key in enumerate(batch.keys):
                    if key in keys and batch.labels[at] >= label and at not in batch.undone:
                        found.setdefault(key, []).append((batch, at))
        return found

    def _correct_key(
        self,
        key: object,
        arrived: list[Arrived],
        applied: list[tuple[Applied, int]],
        again: Applied,
        out: _Corrections,
    ) -> None:
        """Undo the elements of a key from the first label of `arrived` on, and apply all again.

        `applied`: the elements of the key in force; `again` gets the elements that are applied
        again, `out` the outputs and tombstones to send.
        """
        to = min(arrived, key=_label_of)[0]
        there: list[_Entry] = []
        for batch, at in reversed(applied):
            if batch.labels[at] < to:
                break
            undo(batch.changes(at))
            batch.undone.add(at)
            there.append((batch.labels[at], batch.values[at], True, batch.results[at]))
        there.reverse()
        for label, _, value, sign in arrived:
            if sign > 0:
                # Behind elements of the same label: one of them may be taken back in a moment.
                at = bisect_right(there, label, key=_label_of)
                self.late += at < len(there)
                there.insert(at, (label, value, False, None))
                continue
            at = bisect_left(there, label, key=_label_of)
            while at < len(there) and there[at][0] == label and not _alike(there[at][1], value):
                at += 1
            found = there.pop(at) if at < len(there) else None
            assert found is not None, f"a tombstone for {label}, which is not there"
            assert found[0] == label, f"a tombstone for {label}, with another payload"
            _, _, was_applied, before = found
            if was_applied:
                out.add(label, key, before, -1)
        for label, value, was_applied, before in there:
            self.call_again(label, key, value)
            [kept] = self.given
            again.add(label, key, value, kept, len(self.undo_log))
            if not was_applied:
                out.add(label, key, kept, 1)
                continue
            self.reapplied += 1
            if not _same(before, kept):
                out.add(label, key, before, -1)
                out.add(label, key, kept, 1)
        self.table.perhaps_empty.append(key)

    def close(self, frontier: int) -> None:
        self.closed = max(self.closed, frontier)
        if self.record:
            left = []
            for batch in self._open:
                if batch.last < frontier:
                    batch.close(self.changelog)
                else:
                    left.append(batch)
            self._open = left

    def settle(self, frontier: int, exactly: bool = False) -> None:
        # In order of application: the changelog has to have the rows of a key in label order.
        lost: list[object] = []
        done = 0
        while done < len(self.batches) and self.batches[done].last < frontier:
            lost += self._keep_batch(self.batches[done])
            done += 1
        del self.batches[:done]
        if exactly:
            left = []
            for batch in self.batches:
                if batch.last < frontier:
                    lost += self._keep_batch(batch)
                elif batch.chunk or min(times(batch.labels)) >= frontier:
                    left.append(batch)
                else:
                    below, others = batch.split(frontier)
                    lost += self.keep(below.final_changes())
                    left.append(others)
            self.batches = [batch for batch in left if batch.chunk or batch.labels]
        self._open = [batch for batch in self.batches if not batch.chunk]
        self.closed = max(self.closed, frontier)
        self.table.perhaps_empty += lost
        self._reclaim(frontier)

    def _reclaim(self, frontier: int) -> None:
        """Forget keys whose states are empty, once most of those that may be are settled.

        So a key is looked at about twice, however often elements are settled. An element that may
        still be undone needs the states of its key: its changes name them.
        """
        found = len(self.table.perhaps_empty)
        if found and found > 2 * sum(len(batch.keys) for batch in self.batches):
            self.table.reclaim({k for batch in self.batches for k in batch.keys_from(frontier)})

    def _keep_batch(self, batch: Applied) -> list[object]:
        if batch.chunk:
            self.changelog.add(batch.chunk)
            return []
        return self.keep(batch.final_changes())

    def validate(self) -> None:
        super().validate()
        latest: dict[object, Label] = {}
        for batch in self.batches:
            assert batch.chunk or batch.last == max(times(batch.labels))
            for at in batch.in_force():
                label, key = batch.labels[at], batch.keys[at]
                assert latest.get(key, ()) <= label, f"key {key!r}: {label} after {latest[key]}"
                latest[key] = label
        assert all(batch.last <= self.last for batch in self.batches)

    def keys_with_removals(self) -> Iterable[object]:
        changes = chain.from_iterable(batch.undo_log for batch in self.batches)
        return (state.key for state, _, _, new in changes if new is MISSING)


_Entry = tuple[Label, object, bool, object]
"""(label, payload, whether it was applied before, its result then)"""


class _Corrections:
    """The tombstones and new outputs that late elements cause."""

    __slots__ = ("keys", "labels", "results", "signs")

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self.keys: list[object] = []
        self.results: Values = []
        self.signs: list[int] = []

    def add(self, label: Label, key: object, result: object, sign: int) -> None:
        self.labels.append(label)
        self.keys.append(key)
        self.results.append(_made(result))
        self.signs.append(sign)


def _made(result: object) -> object:
    """A result as the function returned it. `result`: as `Keyed.kept_results` keeps it."""
    return list(map(output, result)) if type(result) is list else output(result)


def _alike(one: object, other: object) -> bool:
    """Whether two stored payloads are the same; 1, 1.0 and True are not."""
    return exactly(one) == exactly(other)


def _same(one: object, other: object) -> bool:
    """Whether two stored results would be sent as the same bytes; 1, 1.0 and True would not."""
    if is_a(one, Failure) or is_a(other, Failure):
        return one == other
    return exact(_made(one)) == exact(_made(other))
