"""Windows of a fixed number of elements of a key, in label order.

    >>> from driftline import CountWindow, Flow, Sum, run_reference
    >>> flow = Flow("pairs")
    >>> pairs = flow.source("numbers").key_by(lambda n: n % 2).window(CountWindow(2))
    >>> pairs.aggregate(total=Sum()).sink("totals")
    >>> for item in run_reference(flow, [[1, 3, 4, 5, 7]]):
    ...     print(item.value)
    {'key': 1, 'number': 1, 'total': 4}
    {'key': 1, 'number': 2, 'total': 12}

They need no event times. So elements are never late, and a row leaves with the element that fills
its window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from driftline.engine.errors import FlowError
from driftline.engine.operators.aggregates import Aggregate
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.windowed import Accumulators, Row, fold, types_of
from driftline.engine.state.managed import State, ValueState

Filling = tuple[int, int, Accumulators]
"""(number of the window, number of its elements, accumulators)."""


class CountWindow:
    """Windows of `size` elements of a key: the first `size` in label order, the next, and so on.

    The elements after the last full window change no row.

    Raises:
        FlowError: `size` is not a positive int.
    """

    def __init__(self, size: int) -> None:
        if type(size) is not int or size < 1:
            raise FlowError(f"CountWindow({size!r}): give the number of elements, at least 1")
        self.size = size


@dataclass(frozen=True)
class CountWindowed(KeyedOperator):
    """Operator that emits a row per full window.

    `aggregates`: (name, aggregate) pairs. Their `add_at` takes the position of the element in the
    window in place of its event time.
    """

    size: int
    aggregates: tuple[tuple[str, Aggregate], ...]

    kind = "window"
    emits_many = True
    states = (ValueState[Filling]("window"),)

    def apply(self, context: Context, value: object, window: ValueState[Filling]) -> Sequence[Row]:
        number, count, accumulators = window.get((1, 0, ()))
        added = self._add(accumulators if count else self._zeros(), value, count)
        window.set((number, count + 1, added))
        if count + 1 < self.size:
            return ()
        _, _, full = window.get((0, 0, ()))  # with the types that a state returns
        row = self._row(context.key, number, full)
        window.set((number + 1, 0, ()))
        return (row,)

    def _zeros(self) -> Accumulators:
        return tuple([aggregate.zero() for _, aggregate in self.aggregates])

    def _add(self, accumulators: Accumulators, value: object, position: int) -> Accumulators:
        pairs = zip(self.aggregates, accumulators, strict=True)
        return tuple([each.add_at(before, value, position) for (_, each), before in pairs])

    def _row(self, key: object, number: int, accumulators: Iterable[Any]) -> Row:
        row: Row = {"key": key, "number": number}
        for (name, aggregate), accumulator in zip(self.aggregates, accumulators, strict=True):
            row[name] = aggregate.result(accumulator)
        return row

    def parameters(self) -> object:
        return self.size, [(name, type(each), vars(each)) for name, each in self.aggregates]

    def state_type(self, state: State) -> str:
        return f"{super().state_type(state)} of {self.size} elements ({types_of(self.aggregates)})"

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        """Store the elements of the window, and add all of them at each element."""
        state = cast(ValueState[tuple[int, tuple[object, ...]]], states[0])
        number, elements = state.get((1, ()))
        elements = (*elements, value)
        accumulators = fold(self.aggregates, enumerate(elements))
        is_full = len(elements) == self.size
        rows: list[object] = [self._row(context.key, number, accumulators)] if is_full else []
        state.set((number + 1, ()) if is_full else (number, elements))
        return rows
