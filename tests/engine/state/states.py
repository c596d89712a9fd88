"""States of each type, as an operator declares them, and one on its own."""

from __future__ import annotations

from driftline.engine.state.managed import (
    Change,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from driftline.engine.state.table import StateTable

DECLARED = (
    ValueState[object]("value"),
    ListState[object]("list"),
    MapState[object, object]("map"),
    ReducingState[object]("total", lambda old, new: (old, new)),
)


def fresh(declared: State) -> tuple[State, list[Change]]:
    undo_log: list[Change] = []
    return StateTable((declared,), undo_log).states("key")[0], undo_log
