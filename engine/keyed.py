"""Keyed operators: state per key, and the order in which elements meet it.

`Speculative` is the drifting state of the model (design of FlameStream; Delivery, consistency,
and determinism, section V): an element with the largest label of its key so far is applied at
once. One that comes late is put in its place: what came after it is undone, it is applied, the
rest is applied again, and outputs that are no longer true are taken back by tombstones.
`Arrival` applies elements as they come, for the modes that have no order.

Invariant of `Speculative`: the states of a cell equal those that its log, applied in label order
to the settled state, gives; and what was sent downstream and not taken back are exactly the
results in the logs. `settle` moves what is final out of the logs; its changes, read forwards,
are what the next snapshot writes.

Cost: in order, one dictionary look-up, one comparison, the user's function, one append. Late by
k elements: 2k applications.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import compress
from operator import itemgetter

from engine.codec import pack
from engine.context import Context, Failure
from engine.flow import Vertex
from engine.labels import Label
from engine.operators import Failures, Labels, Signs, Step, Values, children, iterable
from engine.state import MISSING, Cell, CellTable, Change, Entry, undo

_label_of = itemgetter(0)


class Final:
    """Changes of final elements that are not in a snapshot yet."""

    def __init__(self) -> None:
        self.final: list[tuple[int, list[Change]]] = []
        """(time, changes) in label order for each key."""


class Keyed(Final):
    """What all orders share: the cells, the call of the user function, the way out.

    `record`: whether there are snapshots that the final changes are kept for.
    """

    def __init__(
        self, vertex: Vertex, after: Step, failures: Failures, record: bool = True
    ) -> None:
        super().__init__()
        assert vertex.key is not None
        assert vertex.function is not None
        self.vertex = vertex
        self.key = vertex.key
        self.function = vertex.function
        self.many = vertex.kind == "process"
        self.after = after
        self.failures = failures
        self.record = record
        self.journal: list[Change] = []
        self.cells = CellTable(vertex.states, self.journal)

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Take a block of elements."""
        raise NotImplementedError

    def settle(self, frontier: int, partly: bool = False) -> None:
        """Elements with a time below the frontier are final: forget how to undo them."""

    def take_final(self) -> Final:
        """The final changes so far; from now on others are collected."""
        taken = Final()
        taken.final, self.final = self.final, []
        return taken

    def validate(self) -> None:
        """Assert what can be checked of the invariant."""
        assert not self.journal

    def call(self, cell: Cell, label: Label, value: object) -> object:
        """The result of the user function: an output, a list of outputs, or a Failure."""
        try:
            if self.many:
                context = Context(label, cell.key)
                return iterable(self.function(context, value, *cell.states))
            return self.function(value, *cell.states)
        except Exception as error:
            undo(self.journal)
            self.journal.clear()
            return Failure.of(self.vertex.name, cell.key, value, error)

    def emit(self, labels: Labels, results: Values, signs: Signs) -> None:
        """Send results on; failures go where failures go."""
        if Failure in set(map(type, results)):
            good = [not isinstance(result, Failure) for result in results]
            for i, result in enumerate(results):
                if isinstance(result, Failure):
                    self.failures.add(labels[i], result, 1 if signs is None else signs[i])
            labels = list(compress(labels, good))
            results = list(compress(results, good))
            signs = None if signs is None else list(compress(signs, good))
        if self.many:
            labels, results, signs = children(labels, results, signs)  # type: ignore[arg-type]
        if labels:
            self.after.push(labels, results, signs)


class Arrival(Keyed):
    """No order: elements are applied as they come, and nothing can be undone."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        assert signs is None, "without an order nothing is ever taken back"
        call, cells, journal = self.call, self.cells, self.journal
        results: Values = []
        for label, value, key in zip(labels, values, map(self.key, values), strict=True):
            cell = cells[key]
            results.append(call(cell, label, value))
            if journal:
                if self.record:
                    self.final.append((label[0], journal[:]))
                if journal[-1][3] is MISSING and cell.is_empty():
                    del cells[key]
                journal.clear()
        self.emit(labels, results, None)


class Speculative(Keyed):
    """Label order, by applying at once and undoing when an element comes late."""

    def __init__(
        self, vertex: Vertex, after: Step, failures: Failures, record: bool = True
    ) -> None:
        super().__init__(vertex, after, failures, record)
        self.unsettled: deque[tuple[int, int, list[Cell]]] = deque()
        """(first time, last time, cells touched) of the blocks that are not settled yet."""
        self.applied = 0
        self.late = 0

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        self.applied += len(labels)
        touched: list[Cell] = []
        self.unsettled.append((min(labels)[0], max(labels)[0], touched))
        if signs is not None:
            self._push_signed(labels, values, signs, touched)
            return
        # The hot path of the whole system. Late elements are rare: they are put aside.
        call, cells, journal = self.call, self.cells, self.journal
        plain = None if self.many else self.function
        results: Values = []
        late: list[int] = []
        for label, value, key in zip(labels, values, map(self.key, values), strict=True):
            cell = cells[key]
            log = cell.log
            if log and log[-1][0] > label:
                late.append(len(results))
                results.append(None)
                continue
            if plain is not None:
                try:
                    result = plain(value, *cell.states)
                except Exception:
                    undo(journal)
                    journal.clear()
                    result = call(cell, label, value)
            else:
                result = call(cell, label, value)
            log.append((label, value, journal[:], result))
            journal.clear()
            results.append(result)
            touched.append(cell)
        if not late:
            self.emit(labels, results, None)
            return
        on_time = [True] * len(labels)
        for i in late:
            on_time[i] = False
        self.emit(list(compress(labels, on_time)), list(compress(results, on_time)), None)
        out = _Corrections()
        for i in late:
            self._insert(labels[i], values[i], touched, out)
        self.emit(out.labels, out.results, out.signs)

    def _push_signed(
        self, labels: Labels, values: Values, signs: list[int], touched: list[Cell]
    ) -> None:
        out = _Corrections()
        for label, value, sign in zip(labels, values, signs, strict=True):
            if sign > 0:
                self._insert(label, value, touched, out)
            else:
                self._remove(label, value, touched, out)
        self.emit(out.labels, out.results, out.signs)

    def _insert(self, label: Label, value: object, touched: list[Cell], out: _Corrections) -> None:
        cell = self.cells[self.key(value)]
        # Behind its equals: an element that is about to be taken back may still be there.
        at = bisect_right(cell.log, label, key=_label_of)
        undone = self._rewind(cell, at)
        self.late += bool(undone)
        result = self._apply(cell, label, value)
        out.add(label, result, 1)
        self._replay(cell, undone, out)
        touched.append(cell)

    def _remove(self, label: Label, value: object, touched: list[Cell], out: _Corrections) -> None:
        cell = self.cells[self.key(value)]
        at = bisect_left(cell.log, label, key=_label_of)
        while not _same(cell.log[at][1], value):
            at += 1
        assert cell.log[at][0] == label, f"a tombstone for {label}, which is not there"
        undone = self._rewind(cell, at)
        out.add(label, undone[0][3], -1)
        self._replay(cell, undone[1:], out)
        touched.append(cell)

    def _rewind(self, cell: Cell, at: int) -> list[Entry]:
        """Undo the entries of a log from position `at` on; they are returned."""
        undone = cell.log[at:]
        for entry in reversed(undone):
            undo(entry[2])
        del cell.log[at:]
        return undone

    def _replay(self, cell: Cell, undone: list[Entry], out: _Corrections) -> None:
        for label, value, _, before in undone:
            result = self._apply(cell, label, value)
            if not _same(before, result):
                out.add(label, before, -1)
                out.add(label, result, 1)

    def _apply(self, cell: Cell, label: Label, value: object) -> object:
        result = self.call(cell, label, value)
        cell.log.append((label, value, self.journal[:], result))
        self.journal.clear()
        return result

    def settle(self, frontier: int, partly: bool = False) -> None:
        """Move what is final out of the logs.

        Blocks that are only partly final are left for later, unless `partly` (a snapshot needs
        them exactly).
        """
        unsettled = self.unsettled
        for _ in range(len(unsettled)):
            block = unsettled.popleft()
            first, last, touched = block
            if last < frontier or (partly and first < frontier):
                for cell in touched:
                    self._settle_cell(cell, frontier)
            if last >= frontier:
                unsettled.append(block)

    def _settle_cell(self, cell: Cell, frontier: int) -> None:
        log = cell.log
        if not log:
            return
        if log[-1][0][0] < frontier:
            final = log
            cell.log = []
        else:
            count = bisect_left(log, (frontier,), key=_label_of)
            if not count:
                return
            final = log[:count]
            del log[:count]
        self.final += [(entry[0][0], entry[2]) for entry in final if entry[2]]
        if final[-1][2] and final[-1][2][-1][3] is MISSING and cell.is_empty():
            self.cells.pop(cell.key, None)

    def validate(self) -> None:
        super().validate()
        for cell in self.cells.values():
            labels = [entry[0] for entry in cell.log]
            assert labels == sorted(labels), f"log of key {cell.key!r} out of order: {labels}"


class _Corrections:
    """What has to be sent because an element came late: tombstones and new outputs."""

    __slots__ = ("labels", "results", "signs")

    def __init__(self) -> None:
        self.labels: Labels = []
        self.results: Values = []
        self.signs: list[int] = []

    def add(self, label: Label, result: object, sign: int) -> None:
        self.labels.append(label)
        self.results.append(result)
        self.signs.append(sign)


def _same(one: object, other: object) -> bool:
    """Whether two results look the same from outside; 1, 1.0 and True do not."""
    if isinstance(one, Failure) or isinstance(other, Failure):
        return one == other
    return pack(one) == pack(other)
