"""Iterations, on nodes that fail and against plain Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline import Again, Context, Flow, FlowError, FlowTest, MapState, ValueState, run_reference
from driftline.engine.labels import ROUNDS_MAX
from driftline.engine.operators.context import Failure
from driftline.engine.operators.steps import FAILURES
from driftline.engine.policy import get_policy

Message = tuple[int, int | None, int]
"""(node, new neighbour or None, distance)"""


def shorten(
    context: Context, message: Message, links: MapState[int, bool], distance: ValueState[int]
) -> Iterator[tuple[int, int] | Again[Message]]:
    """Keep the distance of a node from node 0."""
    node, neighbour, offered = message
    mine = distance.get(0 if node == 0 else 1000)
    if neighbour is not None:
        links[neighbour] = True
        yield Again((neighbour, None, mine + 1))
    elif offered < mine:
        distance.set(offered)
        yield node, offered
        for other in links:
            yield Again((other, None, offered + 1))


def distances_flow() -> Flow:
    flow = Flow("distances")
    keyed = flow.source("links").map(lambda link: (link[0], link[1], 0)).key_by(0)
    keyed.iterate(shorten, MapState("links"), ValueState("distance")).sink()
    return flow


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_distances_are_right_after_each_link_and_kills_change_nothing(
    links: list[tuple[int, int]], nodes: int, seed: int
) -> None:
    flow = distances_flow()
    items = list(run_reference(flow, [links]))
    found = {0: 0}
    for time, _ in enumerate(links, 1):
        for item in items:
            if item.label[0] == time:
                assert isinstance(item.value, tuple)
                node, distance = item.value
                assert distance < found.get(node, 1000), "each output is an improvement"
                found[node] = distance
        expected, front = {0: 0}, [0]
        while front:
            node = front.pop(0)
            for one, other in links[:time]:
                if one == node and other not in expected:
                    expected[other] = expected[node] + 1
                    front.append(other)
        assert found == expected
    with FlowTest(flow, nodes=nodes, seed=seed) as test:
        for number, link in enumerate(links):
            test.send(link, settle=False)
            if number % 7 == 3:
                test.kill("node-0")
        test.end()
        assert test.items() == items


def test_iteration_without_end_is_a_dead_letter() -> None:
    flow = Flow("endless")
    keyed = flow.source("numbers").key_by(lambda number: number % 3)
    keyed.iterate(lambda context, number: [Again(number + 1)], max_rounds=9).sink()
    [item] = run_reference(flow, [[5]], dead_letters=True)
    failure = Failure.from_payload(item.value)
    assert (failure.record, failure.error.split(":")[0]) == (14, "RuntimeError")
    assert "has not ended after 9 rounds" in failure.error
    with FlowTest(flow, nodes=2, dead_letters=True) as test:
        test.send(5)
        assert [each.value for each in test._items(FAILURES)] == [item.value]


@pytest.mark.parametrize("rounds", [0, -1, 1.5, ROUNDS_MAX])
def test_wrong_number_of_rounds_is_refused(rounds: object) -> None:
    with pytest.raises(FlowError, match="max_rounds is"):
        Flow("rounds").source("in").key_by(0).iterate(lambda context, record: [], max_rounds=rounds)  # type: ignore[arg-type]


def test_policies_that_cannot_loop_refuse_the_flow() -> None:
    for policy in (get_policy("at-least-once"), get_policy("exactly-once", "buffered")):
        with pytest.raises(FlowError, match="iterate 'iterate-2' of flow 'distances' needs"):
            distances_flow().check_policy(policy)
