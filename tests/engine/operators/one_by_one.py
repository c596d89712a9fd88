"""The dumb twin of a keyed step: elements are applied one by one, in the order that is given."""

from collections.abc import Sequence

from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import FAILURES
from driftline.engine.state.managed import Change, undo
from driftline.engine.state.table import StateTable
from tests.engine.operators.kept import Held, held
from tests.engine.operators.operators import Element
from tests.engine.operators.steps import Collected


def one_by_one(vertex: Vertex, elements: Sequence[Element]) -> tuple[list[object], Held]:
    """Outputs (label, sink, payload or error) and states of elements applied in this order."""
    assert vertex.function is not None
    undo_log: list[Change] = []
    table = StateTable(vertex.states, undo_log)
    outputs: list[object] = []
    for label, value in elements:
        try:
            if not vertex.operator.many:
                result = vertex.function(value, *table.states(value[0]))
                outputs.append((label, 0, result))
            else:
                made = vertex.function(Context(label, value[0]), value, *table.states(value[0]))
                numbered = enumerate(list(made))  # type: ignore[call-overload]
                outputs += [((*label, number), 0, output) for number, output in numbered]
        except ValueError as error:
            undo(undo_log)
            outputs.append((label, FAILURES, f"ValueError: {error}"))
        undo_log.clear()
    return sorted(outputs, key=repr), held(table)


def net(collected: Collected) -> list[object]:
    shown: list[object] = []
    for label, sink, value in collected.net():
        if sink == FAILURES:
            assert isinstance(value, tuple)
            value = value[3]
        shown.append((label, sink, value))
    return sorted(shown, key=repr)
