"""Without an order: elements are applied as they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.operators.keyed import Arrival
from driftline.engine.snapshots.jobs import Capture
from tests.engine.operators.arrivals import labels, payloads, push
from tests.engine.operators.kept import chains_of, held, restored, taken
from tests.engine.operators.one_by_one import net, one_by_one
from tests.engine.operators.operators import KINDS, Element, flow_of, make


@pytest.mark.parametrize("kind", KINDS)
@given(elements=st.lists(st.tuples(labels, payloads), max_size=16, unique_by=lambda e: e[0]))
def test_without_an_order_elements_are_applied_as_they_come(
    kind: str, elements: list[Element]
) -> None:
    flow = flow_of(kind)
    step, collected = make(Arrival, flow)
    for start in range(0, len(elements), 4):
        push(step, [(*element, 1) for element in elements[start : start + 4]])
    outputs, states = one_by_one(flow.vertices[1], elements)
    assert net(collected) == outputs
    assert held(step.table) == states


@pytest.mark.parametrize("kind", KINDS)
@given(
    epochs=st.lists(
        st.lists(st.tuples(labels, payloads), max_size=5, unique_by=lambda e: e[0]), max_size=4
    )
)
def test_without_an_order_a_snapshot_holds_the_epochs_that_have_ended(
    kind: str, epochs: list[list[Element]]
) -> None:
    flow = flow_of(kind)
    step, _ = make(Arrival, flow)
    chains: list[bytes] = []
    before: list[Element] = []
    captures: list[Capture] = []
    for elements in epochs:
        push(step, [(*element, 1) for element in elements])
        captures.append(taken(step))  # written when the next epoch has begun
    for elements, capture in zip(epochs, captures, strict=True):
        before += elements
        chains += chains_of(capture)
        assert restored(flow, chains) == one_by_one(flow.vertices[1], before)[1]
