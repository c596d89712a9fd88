"""Keyed operators: state per key, and what all orders of elements share.

`Arrival` applies elements as they come, for the modes that have no order. Label order is the
matter of `engine.speculative`.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import countOf

from engine.context import Context, Failure
from engine.flow import Vertex
from engine.kept import Kept
from engine.labels import Label
from engine.operators import Failures, Signs, Step, Values, children, chosen, iterable
from engine.runs import Labels
from engine.state import MISSING, Change, StateTable, undo


class Keyed:
    """What all orders share: the states, the call of the user function, the way out.

    `record`: whether there are snapshots that final changes are kept for.
    """

    def __init__(
        self,
        vertex: Vertex,
        after: Step,
        failures: Failures,
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
        """The changes of the block that is being applied."""
        self.table = StateTable(vertex.states, self.journal)
        self.kept = Kept(vertex.name, vertex.states)
        self.elements = 0
        self.late = 0
        """Elements that came when something after them had been applied."""
        self.reapplied = 0
        """Elements that were undone for the sake of late ones, and applied again."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Take a block of elements."""
        raise NotImplementedError

    def close(self, frontier: int) -> None:
        """No element with a time below the frontier will come any more."""

    def settle(self, frontier: int, exactly: bool = False) -> None:
        """Elements with a time below the frontier are final.

        Blocks from the first one on that is only partly final are left for later, unless `exactly`.
        """

    def call(self, label: Label, key: object, value: object) -> object:
        """The result of the user function: an output, a list of outputs, or a Failure."""
        states = self.table.states(key)
        before = len(self.journal)
        try:
            if self.many:
                return iterable(self.function(Context(label, key), value, *states))
            return self.function(value, *states)
        except Exception as error:
            self.take_back(before)
            return Failure.of(self.vertex.name, key, value, error)

    def take_back(self, before: int) -> None:
        """Undo the changes in the journal but for the first `before`."""
        undo(self.journal[before:])
        del self.journal[before:]

    def keep(self, changes: list[Change]) -> list[object]:
        """These changes are final. Returns the keys that lost something."""
        if self.record:
            return self.kept.keep(changes)
        return [state.key for state, _, _, new in changes if new is MISSING]

    def reclaim(self, keys: Iterable[object]) -> None:
        """Forget those keys that have nothing in their states."""
        for key in keys:
            self.table.reclaim(key)

    def emit(self, labels: Labels, results: Values, signs: Signs) -> None:
        """Send results on; failures go where failures go."""
        if countOf(map(type, results), Failure):
            good = [not isinstance(result, Failure) for result in results]
            for i, result in enumerate(results):
                if isinstance(result, Failure):
                    self.failures.add(labels[i], result, 1 if signs is None else signs[i])
            labels, results, signs = chosen((labels, results, signs), good)
        if self.many:
            for block in children(labels, results, signs):  # type: ignore[arg-type]
                self.after.push(*block)
        elif labels:
            self.after.push(labels, results, signs)

    def validate(self) -> None:
        """Assert what can be checked of the invariant."""
        assert not self.journal


class Arrival(Keyed):
    """No order: elements are applied as they come, and nothing can be undone."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        assert signs is None, "without an order nothing is ever taken back"
        self.elements += len(labels)
        call, apply, journal = self.call, self.apply, self.journal
        keys = list(map(self.key, values))
        results: Values = []
        for label, key, value, state in zip(
            labels, keys, values, map(self.table.__getitem__, keys), strict=True
        ):
            if apply is None:
                results.append(call(label, key, value))
                continue
            before = len(journal)
            try:
                results.append(apply(value, state))
            except Exception:
                self.take_back(before)
                results.append(call(label, key, value))
        self.reclaim(self.keep(journal))
        journal.clear()
        self.emit(labels, results, None)
