"""What a keyed operator has applied and not settled: batches of elements, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, compress

from driftline.engine.labels import Label
from driftline.engine.order.steps import Values
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import Change
from driftline.engine.wire.label_columns import Labels, select, times

Arrived = tuple[Label, object, object, int]
"""(label, key, payload, sign) of an element that is late, or of a tombstone."""


class Applied:
    """Elements that were applied one after the other and are not settled, as columns.

    Payloads and results are as `engine.state.values` keeps them: no function can change them.
    """

    __slots__ = (
        "chunk",
        "ends",
        "keys",
        "labels",
        "last",
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
        self.ends: list[int] | None = []
        """Where the changes of each element end in the undo_log; None: to be found, by the keys."""
        self.undo_log: list[Change] = []
        self.undone: set[int] = set()
        """Positions of elements that are not in force any more."""
        self.last = max(times(labels), default=0)
        """The largest time."""
        self.chunk = b""
        """What is left of a batch that is closed: its changes, for the next snapshot."""

    def add(self, label: Label, key: object, value: object, result: object, end: int) -> None:
        """Append an element."""
        assert isinstance(self.labels, list)
        assert self.ends is not None
        self.labels.append(label)
        self.keys.append(key)
        self.values.append(value)
        self.results.append(result)
        self.ends.append(end)
        self.last = max(self.last, label[0])

    def without_late(self, on_time: list[bool]) -> list[Arrived]:
        """Let go of the elements that have not been applied, and return them."""
        if all(on_time):
            return []
        late = [
            (label, key, value, 1)
            for label, key, value, applied in zip(
                self.labels, self.keys, self.values, on_time, strict=True
            )
            if not applied
        ]
        self.labels = select(self.labels, on_time)
        self.keys = list(compress(self.keys, on_time))
        self.values = list(compress(self.values, on_time))
        self.last = max(times(self.labels), default=0)
        return late

    def changes(self, at: int) -> list[Change]:
        """What an element has changed."""
        if self.ends is None:
            counts = dict.fromkeys(self.keys, 0)
            for state, _, _, _ in self.undo_log:
                counts[state.key] += 1
            self.ends = list(accumulate(counts.values()))
        return self.undo_log[self.ends[at - 1] if at else 0 : self.ends[at]]

    def in_force(self) -> list[int]:
        """Positions of the elements that have not been undone."""
        return [at for at in range(len(self.labels)) if at not in self.undone]

    def close(self, kept: Changelog) -> None:
        """Nothing will come that is before any of these elements: drop what undoing needs.

        A batch that is not of one time, or is small, or removes something, stays as it is.
        """
        if not self.undone and self.labels and min(times(self.labels)) == self.last:
            chunk = kept.chunk(self.undo_log)
            if chunk is not None:
                self.chunk = chunk
                self.labels, self.keys, self.values = [], [], []
                self.results, self.ends, self.undo_log = [], [], []

    def final_changes(self) -> list[Change]:
        """What the elements in force have changed."""
        if not self.undone:
            return self.undo_log
        return [change for at in self.in_force() for change in self.changes(at)]

    def keys_from(self, time: int) -> Iterator[object]:
        """The keys of elements from a time on."""
        if self.last < time:
            return iter(())
        return (key for label, key in zip(self.labels, self.keys, strict=True) if label[0] >= time)

    def part(self, frontier: int, *, before: bool) -> Applied:
        """The elements in force with times below the frontier, or the others."""
        part = Applied([], [], [])
        for at in self.in_force():
            label = self.labels[at]
            if (label[0] < frontier) is before:
                part.undo_log += self.changes(at)
                part.add(
                    label, self.keys[at], self.values[at], self.results[at], len(part.undo_log)
                )
        return part
