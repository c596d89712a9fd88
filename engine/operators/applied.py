"""Applied batches: elements that a keyed operator has applied and may still undo, as columns.

Example: two elements of different keys, each of which changed a state. Then the first element is
undone:

    >>> from driftline.engine.state.managed import ValueState, changes_of
    >>> log = []
    >>> states = [ValueState("n").for_key(key, log) for key in "ab"]
    >>> batch = Applied([(1, 0), (2, 0)], ["a", "b"], [10, 20])
    >>> batch.results = [None, None]
    >>> for state, value in zip(states, batch.values):
    ...     state.set(value)
    >>> batch.undo_log, batch.ends = log, [4, 8]
    >>> [(slot, new) for state, slot, old, new in changes_of(batch.changes(1))]
    [(None, 20)]
    >>> batch.undone.add(0)
    >>> [new for *_, new in changes_of(batch.final_changes())], list(batch.keys_from(2))
    ([20], ['b'])
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, compress

from driftline.engine.labels import Label
from driftline.engine.operators.steps import Values
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import CHANGE_ITEMS, UndoLog, columns_of
from driftline.engine.wire.label_columns import Labels, select, times

Arrived = tuple[Label, object, object, int]
"""(label, key, payload, sign) of an out-of-order element or a tombstone."""


class Applied:
    """Unsettled batch of elements, in order of application.

    Payloads and results are in the form of `engine.state.values`, which no function can change.
    An element is *in force* unless its position is in `undone`. A batch can be *closed* once no
    element with a time up to `last_time` can arrive. Then only `chunk` and `last_time` remain.
    """

    __slots__ = (
        "chunk",
        "ends",
        "keys",
        "labels",
        "last_time",
        "results",
        "undo_log",
        "undone",
        "values",
    )

    def __init__(self, labels: Labels, keys: list[object], values: Values) -> None:
        self.labels = labels
        self.keys = keys
        self.values = values
        self.results: Values = []
        """Per element: an output, a list of outputs, or a Failure."""
        self.ends: list[int] | None = []
        """Per element, the end of its changes in the undo log. None: not computed yet; `changes`
        computes the ends, which requires distinct keys."""
        self.undo_log: UndoLog = []
        """State changes of the elements, in order of application."""
        self.undone: set[int] = set()
        """Positions of the undone elements."""
        self.last_time = max(times(labels), default=0)
        """Largest time of an element."""
        self.chunk = b""
        """Changes of a closed batch, encoded for the changelog; empty while it is open."""

    def add(self, label: Label, key: object, value: object, result: object, end: int) -> None:
        """Append an element; `end`: the end of its changes in the undo log."""
        assert isinstance(self.labels, list)
        assert self.ends is not None
        self.labels.append(label)
        self.keys.append(key)
        self.values.append(value)
        self.results.append(result)
        self.ends.append(end)
        self.last_time = max(self.last_time, label[0])

    def remove_unapplied(self, was_applied: list[bool]) -> list[Arrived]:
        """Remove and return the elements that the operator did not apply: those out of order."""
        if all(was_applied):
            return []
        unapplied = [
            (label, key, value, 1)
            for label, key, value, applied in zip(
                self.labels, self.keys, self.values, was_applied, strict=True
            )
            if not applied
        ]
        self.labels = select(self.labels, was_applied)
        self.keys = list(compress(self.keys, was_applied))
        self.values = list(compress(self.values, was_applied))
        self.last_time = max(times(self.labels), default=0)
        return unapplied

    def changes(self, position: int) -> UndoLog:
        """Return the state changes that the element at a position made, oldest first."""
        if self.ends is None:
            counts = dict.fromkeys(self.keys, 0)
            for state in columns_of(self.undo_log)[0]:
                counts[state.key] += CHANGE_ITEMS
            self.ends = list(accumulate(counts.values()))
        return self.undo_log[self.ends[position - 1] if position else 0 : self.ends[position]]

    def in_force(self) -> list[int]:
        """Return the positions of the elements in force."""
        return [position for position in range(len(self.labels)) if position not in self.undone]

    def close(self, changelog: Changelog) -> None:
        """Encode the changes, and drop everything that only an undo needs.

        Precondition: no element with a time up to `last_time` will arrive. A batch stays open if it
        has several times or undone elements, or if `Changelog.encode_batch` does not encode it,
        for example because it is small.
        """
        if not self.undone and self.labels and min(times(self.labels)) == self.last_time:
            chunk = changelog.encode_batch(self.undo_log)
            if chunk is not None:
                self.chunk = chunk
                self.labels, self.keys, self.values = [], [], []
                self.results, self.ends, self.undo_log = [], [], []

    def final_changes(self) -> UndoLog:
        """Return the changes of the elements in force."""
        if not self.undone:
            return self.undo_log
        return [*chain.from_iterable(map(self.changes, self.in_force()))]

    def keys_from(self, time: int) -> Iterator[object]:
        """Return the keys of the elements with this time or a later one."""
        if self.last_time < time:
            return iter(())
        return (key for label, key in zip(self.labels, self.keys, strict=True) if label[0] >= time)

    def split(self, frontier: int) -> tuple[Applied, Applied]:
        """Split the elements in force into those with times below the frontier, and the rest."""
        below, above = Applied([], [], []), Applied([], [], [])
        for position in self.in_force():
            label = self.labels[position]
            part = below if label[0] < frontier else above
            part.undo_log += self.changes(position)
            end = len(part.undo_log)
            part.add(label, self.keys[position], self.values[position], self.results[position], end)
        return below, above
