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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from driftline.engine.errors import FlowError
from driftline.engine.operators.aggregates import Accumulators, Aggregates
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.windowed import Row
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

    The position of an element in its window takes the place of its event time.
    """

    size: int
    aggregates: Aggregates

    kind = "window"
    emits_many = True
    states = (ValueState[Filling]("window"),)

    def apply(self, context: Context, value: object, window: ValueState[Filling]) -> Sequence[Row]:
        number, count, accumulators = window.get((1, 0, ()))
        accumulators = accumulators if count else self.aggregates.zeros()
        window.set((number, count + 1, self.aggregates.add(accumulators, value, count)))
        if count + 1 < self.size:
            return ()
        _, _, full = window.get((0, 0, ()))  # with the types that a state returns
        row = self._row(context.key, number, full)
        window.set((number + 1, 0, ()))
        return (row,)

    def _row(self, key: object, number: int, accumulators: Accumulators) -> Row:
        return {"key": key, "number": number, **dict(self.aggregates.results(accumulators))}

    def parameters(self) -> object:
        return self.size, self.aggregates.parameters()

    def state_type(self, state: State) -> str:
        return f"{super().state_type(state)} of {self.size} elements ({self.aggregates})"

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        """Store the elements of the window, and add all of them at each element."""
        state = cast(ValueState[tuple[int, tuple[object, ...]]], states[0])
        number, elements = state.get((1, ()))
        elements = (*elements, value)
        accumulators = self.aggregates.of_elements(enumerate(elements))
        is_full = len(elements) == self.size
        rows: list[object] = [self._row(context.key, number, accumulators)] if is_full else []
        state.set((number + 1, ()) if is_full else (number, elements))
        return rows
