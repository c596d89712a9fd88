"""Section V: exactly-once over determinism, and the total order that gives it."""

from __future__ import annotations

from driftline.engine.flow.flow import Flow
from driftline.engine.reference import run_reference
from driftline.engine.state.managed import ValueState
from driftline.engine.wire.messages import Committed, Prepare
from tests.paper.operations import LEFT, RIGHT, Records, concatenation
from tests.room import Room


def test_an_output_is_released_before_a_snapshot_is_taken() -> None:
    """Section V: "such a system can release an output element before a snapshot is taken because it
    can reproduce the same state in case of failure."
    """
    room = Room(concatenation(), [LEFT, RIGHT], interval=99.0)
    room.run(lambda: len(room.values) == 3)
    assert room.values == ["a", "ab", "abc"]
    assert room.heard(Prepare) == []
    two_phase = Room(concatenation(), [LEFT, RIGHT], mode="two-phase", interval=99.0)
    two_phase.run(lambda: bool(two_phase.values))
    assert two_phase.heard(Committed), "the comparison policy has to wait for its commit"


def test_nondeterministic_operation_is_detected() -> None:
    """Section V: "The limitation of this approach is that only deterministic operations (e.g.
    without the usage of random values) are allowed in a data flow."
    """
    calls: list[str] = []
    flow = Flow("not deterministic")

    def count_calls(text: str, state: ValueState[int]) -> tuple[str, int]:
        calls.append(text)
        return text, len(calls)

    flow.source("in").key_by(lambda _: 0).scan(count_calls, ValueState("state")).sink()
    records: Records = [(time, f"t{time}") for time in range(1, 9)]
    room = Room(flow, [records], interval=99.0)
    room.run(room.has(4))
    for node in room.nodes:
        room.crash(node)
    room.run(room.stopped)
    assert "NotDeterministic" in room.master.coordinator.error
    assert "label [" in room.master.coordinator.error


def test_labels_define_a_total_order() -> None:
    """Section V: "x1 < x2 <=> t(x1) < t(x2)": different outputs have different labels, in order."""
    flow = Flow("labels")
    words = flow.source("in").flat_map(str.split, name="words")
    words.union(words.map(str.upper, name="upper")).sink("all")
    labels = [item.label for item in run_reference(flow, [["a b", "c d e"]])]
    assert len(set(labels)) == len(labels) == 10
    assert labels == sorted(labels)
