"""After random changes, each state equals a plain twin; any change can be undone."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from driftline.engine.snapshots.jobs import Capture
from driftline.engine.snapshots.merging import restore
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    UndoLog,
    ValueState,
    undo,
)
from driftline.engine.state.table import StateTable
from driftline.engine.wire.codec import pack, unpack
from tests.engine.state.states import DECLARED, exact

OFTEN = ["append", "append", "append", "put", "put", "set value", "add", "replace"]
SELDOM = [
    "clear value",
    "pop",
    "pop one",
    "keep last",
    "clear list",
    "remove",
    "clear map",
    "clear total",
]

SLOTS: list[object] = ["a", "b", 1, 1.0, True, -0.0, (1, "a"), (True, "a"), None]
"""Keys of a map; some are equal in Python but different here."""

VALUES: list[object] = [0, 1, 1.0, True, -0.0, "a", None, (1, ("b",))]

One = tuple[str, object, int, object]
"""One change: (what, slot of a map, index in a list, value)."""


def element(seed: int) -> list[One]:
    """Return the changes of an element, from a seed: drawing each by hypothesis would be slow."""
    chance = Random(seed)
    return [
        (
            chance.choice(OFTEN + SELDOM),
            chance.choice(SLOTS),
            chance.randint(-3, 3),
            chance.choice(VALUES),
        )
        for _ in range(chance.randint(0, 8))
    ]


elements = st.integers(0, 2**32).map(element)


class Twin:
    """The states in plain Python."""

    def __init__(self) -> None:
        self.value: list[object] = []
        self.list: list[object] = []
        self.map: dict[bytes, object] = {}
        """Packed key -> value."""
        self.total: list[object] = []

    def shown(self) -> object:
        in_order = [(unpack(key), value) for key, value in sorted(self.map.items())]
        return exact((self.value, self.list, in_order, self.total))


class StateMachine(RuleBasedStateMachine):
    """Random changes by random elements; sometimes the latest elements are undone."""

    def __init__(self) -> None:
        super().__init__()
        self.undo_log: UndoLog = []
        self.table = StateTable(DECLARED, self.undo_log)
        self.value, self.list, self.map, self.total = self.states()
        self.twin = Twin()
        self.changelog = Changelog("op", DECLARED)
        self.elements: list[tuple[Twin, UndoLog]] = []
        """For each element that is not final: the twin before it, and its changes."""
        self.final = Twin()
        self.segments: list[bytes] = []
        self.before = deepcopy(self.twin)

    def states(
        self,
    ) -> tuple[
        ValueState[object],
        ListState[object],
        MapState[object, object],
        ReducingState[object],
    ]:
        value, many, mapped, total = self.table.states("key")
        assert isinstance(value, ValueState)
        assert isinstance(many, ListState)
        assert isinstance(mapped, MapState)
        assert isinstance(total, ReducingState)
        return value, many, mapped, total

    def apply(self, what: str, slot: object, index: int, value: object) -> None:
        """Apply one change to the state and to its twin."""
        twin = self.twin
        if what == "set value":
            self.value.set(value)
            twin.value = [value]
        elif what == "clear value":
            self.value.clear()
            twin.value = []
        elif what == "append":
            self.list.append(value)
            twin.list.append(value)
        elif what == "pop" and not twin.list:
            with pytest.raises(IndexError):
                self.list.pop()
        elif what == "pop":
            assert exact(self.list.pop()) == exact(twin.list.pop())
        elif what == "pop one" and not -len(twin.list) <= index < len(twin.list):
            with pytest.raises(IndexError):
                self.list.pop(index)
        elif what == "pop one":
            assert exact(self.list.pop(index)) == exact(twin.list.pop(index))
        elif what == "keep last":
            del self.list[:index]
            del twin.list[:index]
        elif what == "replace" and -len(twin.list) <= index < len(twin.list):
            self.list[index] = value
            twin.list[index] = value
        elif what == "replace":
            with pytest.raises(IndexError):
                self.list[index] = value
        elif what == "clear list":
            self.list.clear()
            twin.list.clear()
        elif what == "put":
            self.map[slot] = value
            twin.map[pack(slot)] = value
        elif what == "remove" and pack(slot) not in twin.map:
            with pytest.raises(KeyError):
                del self.map[slot]
        elif what == "remove":
            del self.map[slot]
            del twin.map[pack(slot)]
        elif what == "clear map":
            self.map.clear()
            twin.map.clear()
        elif what == "add":
            twin.total = [(twin.total[0], value) if twin.total else value]
            assert exact(self.total.add(value)) == exact(twin.total[0])
        elif what == "clear total":
            self.total.clear()
            twin.total = []

    @rule(made=elements)
    def change(self, made: list[One]) -> None:
        """Apply changes of the current element."""
        for one in made:
            self.apply(*one)

    @rule(others=st.lists(elements, min_size=1, max_size=4))
    def end_elements(self, others: list[list[One]]) -> None:
        """End the current element, then apply and end others."""
        for made in [[], *others]:
            self.change(made)
            self.elements.append((self.before, self.undo_log[:]))
            self.undo_log.clear()
            self.before = deepcopy(self.twin)

    @rule(count=st.integers(1, 4))
    def undo_latest(self, count: int) -> None:
        """Undo the changes of the current element, and of some elements before it."""
        undo(self.undo_log)
        self.undo_log.clear()
        self.twin = self.before
        for _ in range(min(count, len(self.elements))):
            self.twin, changes = self.elements.pop()
            undo(changes)
        self.before = deepcopy(self.twin)

    @rule(count=st.integers(1, 4))
    def settle_oldest(self, count: int) -> None:
        """Make the changes of the oldest elements final."""
        for _, changes in self.elements[:count]:
            self.changelog.add_changes(changes)
        del self.elements[:count]
        self.final = deepcopy(self.elements[0][0] if self.elements else self.before)

    @rule()
    def snapshot(self) -> None:
        """Take a snapshot; all snapshots so far, replayed, restore the final state."""
        capture = Capture()
        capture.take(self.changelog)
        while capture.step():
            pass
        self.segments += capture.segments.values()
        table = StateTable(DECLARED, [])
        restore({"op": table}, self.segments)
        assert shown(table) == self.final.shown()

    @precondition(lambda self: not self.undo_log and not self.elements)
    @rule()
    def recover(self) -> None:
        """Replace the states by those restored from the snapshots."""
        self.settle_oldest(99)
        self.snapshot()
        self.table = StateTable(DECLARED, self.undo_log)
        restore({"op": self.table}, self.segments)
        self.value, self.list, self.map, self.total = self.states()

    @invariant()
    def equals_its_twin(self) -> None:
        assert shown(self.table) == self.twin.shown()
        assert self.value.is_empty() == (not self.twin.value)
        assert self.list.is_empty() == (not self.twin.list)
        assert self.map.is_empty() == (not self.twin.map)
        assert len(self.map) == len(self.twin.map)


def shown(table: StateTable) -> object:
    """Return the states in the form of `Twin.shown`, read in every possible way."""
    value, many, mapped, total = table.states("key")
    assert isinstance(value, ValueState)
    assert isinstance(many, ListState)
    assert isinstance(mapped, MapState)
    assert isinstance(total, ReducingState)
    none = object()
    items = mapped.items()
    assert [key for key, _ in items] == list(mapped) == mapped.keys()
    assert exact([found for _, found in items]) == exact(mapped.values())
    assert exact([mapped[key] for key in mapped]) == exact(mapped.values())
    assert exact([many[i] for i in range(len(many))]) == exact(list(many))
    return exact(
        (
            [found for found in [value.get(none)] if found is not none],
            list(many),
            items,
            [found for found in [total.get(none)] if found is not none],
        )
    )


StateMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestStateMachine = StateMachine.TestCase
