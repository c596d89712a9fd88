"""Keyed operators: state per key, and the order in which elements meet it.

`Speculative` is the drifting state of the model (design of FlameStream; Delivery, consistency,
and determinism, section V): an element with the largest label of its key so far is applied at
once. One that comes late is put in its place: what came after it is undone, it is applied, the
rest is applied again, and outputs that are no longer true are taken back by tombstones.
`Arrival` applies elements as they come, for the modes that have no order.

Invariant of `Speculative`: the states of a key equal those that its log, applied in label order to
the settled state, gives; and what was sent downstream and not taken back are exactly the results
in the logs. `settle` takes what is final out of the logs; its changes, read forwards, are what
the next snapshot writes.

Cost: in order, two dictionary look-ups, one comparison, the user's function, two appends, and as
much again to settle. Late by k elements: 2k applications.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import compress
from operator import itemgetter

from engine.codec import exact
from engine.context import Context, Failure
from engine.flow import Vertex
from engine.keygroups import GroupCache
from engine.labels import Label
from engine.operators import Failures, Labels, Signs, Step, Values, children, iterable
from engine.state import MISSING, Change, StateTable, keep_rows, undo

Entry = tuple[Label, object, object, tuple[Change, ...], object]
"""(label, key, payload, changes, result) of an applied element."""

_label_of = itemgetter(0)


class Keyed:
    """What all orders share: the states, the call of the user function, the way out.

    `record`: whether there are snapshots that final changes are kept for.
    """

    def __init__(
        self,
        vertex: Vertex,
        after: Step,
        failures: Failures,
        groups: GroupCache,
        record: bool = True,
    ) -> None:
        assert vertex.key is not None
        assert vertex.function is not None
        self.vertex = vertex
        self.key = vertex.key
        self.function = vertex.function
        self.many = vertex.kind == "process"
        self.apply = self.function if len(vertex.states) == 1 and not self.many else None
        """The function itself where it takes just an element and a state: the fast way."""
        self.after = after
        self.failures = failures
        self.record = record
        self.journal: list[Change] = []
        """The changes of the element that is being applied."""
        self.table = StateTable(vertex.states, self.journal, groups)
        self.elements = 0
        self.late = 0
        """Elements that came when something after them had been applied."""
        self.reapplied = 0
        """Elements that were undone for the sake of late ones, and applied again."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Take a block of elements."""
        raise NotImplementedError

    def settle(self, frontier: int, exactly: bool = False) -> None:
        """Elements with a time below the frontier are final.

        Blocks from the first one on that is only partly final are left for later, unless `exactly`.
        """

    def call(self, label: Label, key: object, value: object) -> object:
        """The result of the user function: an output, a list of outputs, or a Failure."""
        states = self.table.states(key)
        try:
            if self.many:
                return iterable(self.function(Context(label, key), value, *states))
            return self.function(value, *states)
        except Exception as error:
            undo(self.journal)
            self.journal.clear()
            return Failure.of(self.vertex.name, key, value, error)

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

    def validate(self) -> None:
        """Assert what can be checked of the invariant."""
        assert not self.journal


class Arrival(Keyed):
    """No order: elements are applied as they come, and nothing can be undone."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        assert signs is None, "without an order nothing is ever taken back"
        self.elements += len(labels)
        call, apply, journal, record = self.call, self.apply, self.journal, self.record
        keys = list(map(self.key, values))
        results: Values = []
        for label, key, value, state in zip(
            labels, keys, values, map(self.table.__getitem__, keys), strict=True
        ):
            if apply is not None:
                try:
                    result = apply(value, state)
                except Exception:
                    undo(journal)
                    journal.clear()
                    result = call(label, key, value)
            else:
                result = call(label, key, value)
            results.append(result)
            if journal:
                if record:
                    keep_rows(journal)
                if journal[-1][3] is MISSING:
                    self.table.reclaim(key)
                journal.clear()
        self.emit(labels, results, None)


class Speculative(Keyed):
    """Label order, by applying at once and undoing when an element comes late."""

    def __init__(
        self,
        vertex: Vertex,
        after: Step,
        failures: Failures,
        groups: GroupCache,
        record: bool = True,
    ) -> None:
        super().__init__(vertex, after, failures, groups, record)
        self.logs: dict[object, list[Entry]] = {}
        """key -> its elements that are not settled yet, in label order."""
        self.blocks: list[tuple[int, int, list[Entry]]] = []
        """The same elements in the order in which they were applied: (first time, last time,
        entries) of each block."""
        self.undone: set[int] = set()
        """Identities of entries in `blocks` that are not in a log any more."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        self.elements += len(labels)
        entries: list[Entry] = []
        if signs is not None:
            self._correct(list(zip(labels, values, signs, strict=True)), entries)
            self._keep(entries)
            return
        # The hot path of the whole system. Late elements are rare: they are put aside.
        call, apply, journal, logs = self.call, self.apply, self.journal, self.logs
        find_log, note = logs.get, entries.append
        keys = list(map(self.key, values))
        results: Values = []
        late: list[int] = []
        for label, key, value, state in zip(
            labels, keys, values, map(self.table.__getitem__, keys), strict=True
        ):
            log = find_log(key)
            if log is not None and log[-1][0] > label:
                late.append(len(results))
                results.append(None)
                continue
            if apply is not None:
                try:
                    result = apply(value, state)
                except Exception:
                    undo(journal)
                    journal.clear()
                    result = call(label, key, value)
            else:
                result = call(label, key, value)
            entry = (label, key, value, tuple(journal), result)
            journal.clear()
            if log is None:
                logs[key] = [entry]
            else:
                log.append(entry)
            note(entry)
            results.append(result)
        if not late:
            self._keep(entries)
            self.emit(labels, results, None)
            return
        on_time = [True] * len(labels)
        for i in late:
            on_time[i] = False
        self.emit(list(compress(labels, on_time)), list(compress(results, on_time)), None)
        self._correct([(labels[i], values[i], 1) for i in late], entries)
        self._keep(entries)

    def _correct(self, arrived: list[tuple[Label, object, int]], entries: list[Entry]) -> None:
        """Put elements (sign +1) into their places, take others (sign -1) out of theirs."""
        by_key: dict[object, list[tuple[Label, object, int]]] = {}
        for element in arrived:
            by_key.setdefault(self.key(element[1]), []).append(element)
        out = _Corrections()
        for key, elements in by_key.items():
            self._correct_key(key, elements, entries, out)
        self.emit(out.labels, out.results, out.signs)

    def _correct_key(
        self,
        key: object,
        arrived: list[tuple[Label, object, int]],
        entries: list[Entry],
        out: _Corrections,
    ) -> None:
        """Undo back to the first of the elements, and apply what belongs there from then on."""
        undone = self._rewind(key, min(arrived, key=_label_of)[0])
        there: list[tuple[Label, object, Entry | None]] = [(e[0], e[2], e) for e in undone]
        for label, value, sign in arrived:
            if sign > 0:
                # Behind its equals: an element that is about to be taken back may still be there.
                at = bisect_right(there, label, key=_label_of)
                self.late += at < len(there)
                there.insert(at, (label, value, None))
                continue
            at = bisect_left(there, label, key=_label_of)
            while at < len(there) and not _same(there[at][1], value):
                at += 1
            assert at < len(there), f"a tombstone for {label}, which is not there"
            before = there.pop(at)[2]
            if before is not None:
                out.add(label, before[4], -1)
        for label, value, before in there:
            result = self._apply(key, label, value, entries)
            if before is None:
                out.add(label, result, 1)
                continue
            self.reapplied += 1
            if not _same(before[4], result):
                out.add(label, before[4], -1)
                out.add(label, result, 1)

    def _rewind(self, key: object, to: Label) -> list[Entry]:
        """Undo the entries of a key from a label on; they are returned."""
        log = self.logs.get(key)
        if log is None:
            return []
        at = bisect_left(log, to, key=_label_of)
        undone = log[at:]
        for entry in reversed(undone):
            undo(entry[3])
            self.undone.add(id(entry))  # `blocks` keeps it alive, so the identity is its own
        del log[at:]
        if not log:
            del self.logs[key]
        return undone

    def _apply(self, key: object, label: Label, value: object, entries: list[Entry]) -> object:
        result = self.call(label, key, value)
        entry = (label, key, value, tuple(self.journal), result)
        self.journal.clear()
        self.logs.setdefault(key, []).append(entry)
        entries.append(entry)
        return result

    def _keep(self, entries: list[Entry]) -> None:
        if entries:
            times = [entry[0][0] for entry in entries]
            self.blocks.append((min(times), max(times), entries))

    def settle(self, frontier: int, exactly: bool = False) -> None:
        # Block by block: the rows of a key have to be in label order.
        done = 0
        while done < len(self.blocks) and self.blocks[done][1] < frontier:
            self._settle(self.blocks[done][2], frontier)
            done += 1
        del self.blocks[:done]
        if exactly:
            for i, (first, last, entries) in enumerate(self.blocks):
                if first < frontier:
                    self._settle([e for e in entries if e[0][0] < frontier], frontier)
                    rest = [e for e in entries if e[0][0] >= frontier]
                    self.blocks[i] = frontier, last, rest

    def _settle(self, entries: list[Entry], frontier: int) -> None:
        logs, undone, find_log = self.logs, self.undone, self.logs.get
        for entry in entries:
            if undone and id(entry) in undone:
                undone.discard(id(entry))
                continue
            _, key, _, changes, _ = entry
            keep_rows(changes)
            log = find_log(key)
            if log is not None:
                if log[-1][0][0] < frontier:
                    del logs[key]
                elif log[0][0][0] < frontier:
                    del log[: bisect_left(log, (frontier,), key=_label_of)]
            if changes and changes[-1][3] is MISSING and key not in logs:
                self.table.reclaim(key)

    def validate(self) -> None:
        super().validate()
        for key, log in self.logs.items():
            labels = [entry[0] for entry in log]
            assert labels == sorted(labels), f"log of key {key!r} out of order: {labels}"
            assert log, f"an empty log of key {key!r}"


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
    return exact(one) == exact(other)
