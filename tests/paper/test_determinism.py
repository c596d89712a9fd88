"""Section V: exactly-once over determinism, and the total order that gives it."""

from __future__ import annotations

from driftline.engine.flow.flow import Flow
from driftline.engine.reference import run_reference
from driftline.engine.state.managed import ValueState
from driftline.engine.wire.messages import Committed, Prepare
from tests.paper.operations import LEFT, RIGHT, Records, concatenation
from tests.stepped_cluster import SteppedCluster


def test_an_output_is_released_before_a_snapshot_is_taken() -> None:
    """Section V: "such a system can release an output element before a snapshot is taken because it
    can reproduce the same state in case of failure."
    """
    cluster = SteppedCluster(concatenation(), [LEFT, RIGHT], interval=99.0)
    cluster.run(lambda: len(cluster.values) == 3)
    assert cluster.values == ["a", "ab", "abc"]
    assert cluster.messages_of(Prepare) == []
    two_phase = SteppedCluster(concatenation(), [LEFT, RIGHT], mode="two-phase", interval=99.0)
    two_phase.run(lambda: bool(two_phase.values))
    assert two_phase.messages_of(Committed), "the comparison policy has to wait for its commit"


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
    cluster = SteppedCluster(flow, [records], interval=99.0)
    cluster.run(cluster.has(4))
    for node in cluster.nodes:
        cluster.crash(node)
    cluster.run(cluster.stopped)
    assert "NotDeterministic" in cluster.master.coordinator.error
    assert "label [" in cluster.master.coordinator.error


def test_labels_define_a_total_order() -> None:
    """Section V: "x1 < x2 <=> t(x1) < t(x2)": different outputs have different labels, in order."""
    flow = Flow("labels")
    words = flow.source("in").flat_map(str.split, name="words")
    words.union(words.map(str.upper, name="upper")).sink("all")
    labels = [item.label for item in run_reference(flow, [["a b", "c d e"]])]
    assert len(set(labels)) == len(labels) == 10
    assert labels == sorted(labels)
