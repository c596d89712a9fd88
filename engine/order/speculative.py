"""Label order by speculation: elements are applied at once, and undone when one comes late.

This is the drifting state of the model (design of FlameStream; Delivery, consistency, and
determinism, section V). An element with the largest label of its key so far is applied at once.
One that comes late is put in its place: what came after it is undone, it is applied, the rest is
applied again, and outputs that are no longer true are taken back by tombstones.

Invariant: the states of a key equal those that its elements in force, applied in label order to
the settled state, give; and what was sent downstream and not taken back are exactly the results
of the elements in force. `settle` lets go of what is final; its changes, read forwards, are what
the next snapshot writes.

What has been applied is kept as it came, in columns, batch by batch; the elements of one key are
looked for only where a batch comes that is not after all others. So on the hot path the order
costs a comparison per batch. Late by k elements: 2k applications, and a look at what has been
applied since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Mapping
from operator import itemgetter

from driftline.engine.flow.context import Failure
from driftline.engine.flow.flow import Vertex
from driftline.engine.labels import Label
from driftline.engine.order.applied import Applied, Arrived
from driftline.engine.order.ends import Maker
from driftline.engine.order.keyed import Keyed
from driftline.engine.order.steps import Failures, Signs, Step, Values
from driftline.engine.state.managed import undo
from driftline.engine.state.values import exactly, fresh, output
from driftline.engine.wire.codec import exact
from driftline.engine.wire.label_columns import Labels, times

_label_of = itemgetter(0)


class Speculative(Keyed):
    """Label order, by applying at once and undoing when an element comes late."""

    def __init__(
        self,
        vertex: Vertex,
        after: Step,
        failures: Failures,
        record: bool = True,
        maker: Maker | None = None,
    ) -> None:
        super().__init__(vertex, after, failures, record, maker)
        self.batches: list[Applied] = []
        """What is not settled, in the order in which it was applied."""
        self._open: list[Applied] = []
        """Those of them that may still be closed."""
        self.last = -1
        """The largest time that was ever applied."""
        self.closed = 0
        """No element with a time below this one may come any more."""

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
        in_time = first > self.last
        since = {} if in_time else self._applied_since(min(labels), different)
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
        """Apply elements of different keys, none late: the hot path of the whole system.

        Returns False if the function raises, or its changes cannot be kept as they are; then
        nothing has been done.
        """
        try:
            if self.apply is None:
                batch.results = list(map(self.call, batch.labels, batch.keys, values))
            else:
                states = map(self.table.__getitem__, batch.keys)
                batch.results = list(map(self.apply, values, states))
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.take_back(0)
            return False
        if len(batch.results) < len(values):  # `map` takes StopIteration for its own end
            self.take_back(0)
            return False
        if self.begins_again(batch.results):
            return False
        batch.ends = None  # as no two elements are of one key, it can be found when it is needed
        return True

    def _apply_in_turn(
        self,
        batch: Applied,
        since: Mapping[object, list[tuple[Applied, int]]],
        values: Values,
    ) -> list[Arrived]:
        """Apply the elements that are not late; `since`: what was applied from the first on.

        Those that are late are taken out of the batch, and returned.
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
        """Apply the elements that are not late. Returns which were not."""
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
        """Keep a batch whose changes are in the undo_log."""
        if batch.labels:
            self.last = max(self.last, batch.last)
            batch.undo_log = self.undo_log[:]
            self.undo_log.clear()
            self.batches.append(batch)
            self._open.append(batch)

    def _correct(self, arrived: list[Arrived]) -> None:
        """Put elements (sign +1) into their places, take others (sign -1) out of theirs."""
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
        """For each of the keys its elements in force from a label on, in label order."""
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
        """Undo back to the first of the elements, and apply what belongs there from then on."""
        to = min(arrived, key=_label_of)[0]
        there: list[_There] = []
        for batch, at in reversed(applied):
            if batch.labels[at] < to:
                break
            undo(batch.changes(at))
            batch.undone.add(at)
            there.append((batch.labels[at], batch.values[at], True, batch.results[at]))
        there.reverse()
        for label, _, value, sign in arrived:
            if sign > 0:
                # Behind its equals: an element that is about to be taken back may still be there.
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
        # Batch by batch: the rows of a key have to be in label order.
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
                    lost += self.keep(batch.part(frontier, before=True).final_changes())
                    left.append(batch.part(frontier, before=False))
            self.batches = [batch for batch in left if batch.chunk or batch.labels]
        self._open = [batch for batch in self.batches if not batch.chunk]
        self.closed = max(self.closed, frontier)
        if lost:
            needed = {key for batch in self.batches for key in batch.keys_from(frontier)}
            self.reclaim(key for key in lost if key not in needed)

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


_There = tuple[Label, object, bool, object]
"""(label, payload, whether it has been applied before, and with which result)"""


class _Corrections:
    """What has to be sent because an element came late: tombstones and new outputs."""

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
    """A result that may have been kept, as the function made it."""
    return list(map(output, result)) if type(result) is list else output(result)


def _alike(one: object, other: object) -> bool:
    """Whether two arguments that are kept are the same."""
    return exactly(one) == exactly(other)


def _same(one: object, other: object) -> bool:
    """Whether two kept results look the same from outside; 1, 1.0 and True do not."""
    if isinstance(one, Failure) or isinstance(other, Failure):
        return one == other
    return exact(_made(one)) == exact(_made(other))
