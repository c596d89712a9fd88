"""What a keyed step keeps: the states of its keys, in its table or in snapshots of it."""

from collections.abc import Sequence

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.keyed import Keyed
from driftline.engine.snapshots.jobs import Capture
from driftline.engine.snapshots.merging import restore
from driftline.engine.state.table import StateTable

Held = dict[object, list[dict[object, object]]]
"""key -> for each state, slot -> value"""


def held(table: StateTable) -> Held:
    """What a table holds; a key with nothing in its states counts as not there."""
    found = {key: [dict(state.slots()) for state in table.states(key)] for key in list(table)}
    return {key: slots for key, slots in found.items() if any(slots)}


def restored(flow: Flow, chains: Sequence[bytes]) -> Held:
    table = StateTable(flow.vertices[1].states, [])
    restore({"op": table}, chains)
    return held(table)


def snapshot(step: Keyed, before: int) -> list[bytes]:
    step.settle(before, exactly=True)
    return chains_of(taken(step))


def taken(step: Keyed) -> Capture:
    capture = Capture()
    capture.take(step.changelog)
    return capture


def chains_of(capture: Capture) -> list[bytes]:
    while capture.step():
        pass
    return list(capture.segments.values())
