"""Turn budgets, and when a node holds back its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from driftline import ValueState
from driftline.deploy.node.backpressure import (
    INITIAL_ELEMENTS,
    NOT_CAREFUL,
    TURN_S,
    TurnBudget,
)
from driftline.deploy.node.input_queue import ElementBatch
from driftline.deploy.node.node import Node
from driftline.deploy.roles.front import Front
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.policy import POLICIES, get_policy
from driftline.engine.reference import interpret
from driftline.engine.state.managed import MapState, ReducingState
from driftline.engine.texts import format_time
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.label_columns import LabelColumn
from driftline.engine.wire.messages import AskSnapshot
from driftline.engine.wire.role import Role
from driftline.simulation.scenarios.flows import two_fronts
from driftline.simulation.scenarios.scenario import draw_scenario
from driftline.simulation.simulation import Simulation
from tests.stepped_cluster import SteppedCluster


class BudgetClock:
    """Clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(count: int, time: int = 5) -> ElementBatch:
    payloads: list[object] = list(range(count))
    return ElementBatch(LabelColumn((time, 0), range(count)), pack_rows(payloads), None)


def process_in_turns(
    pace: TurnBudget, clock: BudgetClock, rest: ElementBatch | None, each_s: float
) -> list[int]:
    """Process a batch at `each_s` seconds an element; return the number of elements per turn."""
    taken = []
    while rest is not None:
        pace.begin()
        first, rest = pace.cut(0, rest)
        pace.begin_batch(0, first)
        clock.now += each_s * len(first.labels)
        pace.end_batch(0, len(first.labels))
        taken.append(len(first.labels))
    return taken


def test_batch_size_adapts_to_the_measured_cost_of_an_element() -> None:
    clock = BudgetClock()
    first, *others, _ = process_in_turns(
        TurnBudget(make_plan(two_fronts), clock), clock, batch(1000), 0.01
    )
    assert first <= INITIAL_ELEMENTS
    assert len(others) > 50
    assert all(0.5 < count * 0.01 / TURN_S < 1.5 for count in others[10:])


def test_cut_batch_keeps_all_elements_in_order() -> None:
    labels: list[Label] = [(1, 0), (2, 0), (3, 0)]
    whole = ElementBatch(labels, pack_rows(["a", "b", "c"]), [1, -1, 1])
    first, rest = whole.cut(2)
    assert first.elements() == (labels[:2], ["a", "b"], [1, -1])
    assert rest.elements() == (labels[2:], ["c"], [1])


def test_after_a_crash_suspect_elements_are_processed_one_by_one() -> None:
    clock = BudgetClock()
    notes: list[str] = []
    pace = TurnBudget(make_plan(two_fronts), clock, careful=(5, 6), note=notes.append)
    assert process_in_turns(pace, clock, batch(3, time=4), 0.0) == [3]
    assert process_in_turns(pace, clock, batch(3, time=5), 0.0) == [1, 1, 1]
    written = [note for note in notes if note]
    assert "label [5, 0, 1]" in written[2]
    assert "record 1" in written[2]
    assert notes[-1] == ""
    pace.record_processed(6)
    assert process_in_turns(pace, clock, batch(2), 0.0) == [1, 1]
    pace.record_processed(7)
    assert process_in_turns(pace, clock, batch(2), 0.0) == [2]


def spelled(text: str) -> str:
    return text


def chained() -> Flow:
    flow = Flow("chained")
    words = flow.source("a").map(spelled, name="slow").map(spelled)
    words.key_by(spelled).scan(lambda word, n: word, ValueState("n"), name="count").map(
        spelled, name="last"
    ).sink("words")
    flow.source("plain").key_by(0).scan(lambda word, n: word, ValueState("n"), name="of 0").sink(
        "plain words"
    )
    flow.source("single").filter(bool, name="only").sink("single words")
    return flow


OPERATORS = [
    "operators 'slow', 'map-2', 'key of count' after source 'a'",
    "source 'plain'",
    "operator 'only' after source 'single'",
    "operators 'count', 'last'",
    "operator 'of 0'",
]


@pytest.mark.parametrize(("port", "operators"), list(enumerate(OPERATORS)))
def test_activity_names_chained_operators_label_and_record(port: int, operators: str) -> None:
    notes: list[str] = []
    pace = TurnBudget(make_plan(chained()), BudgetClock(), careful=(5, 6), note=notes.append)
    assert pace.doing() == "work outside elements"
    pace.begin_batch(port, ElementBatch([(5, 0)], pack_rows(["x" * 300]), None))
    cut = "'" + "x" * 199 + "… (302 characters)"
    assert pace.doing() == f"{operators}, label [5, 0], record {cut}"
    assert notes[0].startswith(f"{operators}, label [5, 0], ")
    assert notes[0].endswith(f"record {cut}")
    live: list[Label] = [(1763856304123456, 0), (1763856304123457, 0)]
    pace.begin_batch(port, ElementBatch(live, pack_rows(["a", "b"]), None))
    taken = format_time(live[0][0])
    assert pace.doing() == (
        f"{operators}, a batch of 2 elements that begins with label {list(live[0])} ({taken}), "
        "record 'a'"
    )


class RandomTurnSimulation(Simulation):
    """Simulation whose turns end at random clock readings; sometimes nodes are careful."""

    def _node_factory(self, index: int) -> Callable[[str], Sequence[Role]]:
        make = super()._node_factory(index)
        chance = Random(self.scenario.seed)
        clock = BudgetClock()

        def tick() -> float:
            clock.now += chance.choice((0.0, 0.0, 0.001, 0.01, 0.2))
            return clock.now

        def with_random_budget(process: str) -> Sequence[Role]:
            parties = make(process)
            node = parties[0]
            assert isinstance(node, Node)
            node.budget = TurnBudget(
                self.plan, tick, careful=chance.choice((NOT_CAREFUL, NOT_CAREFUL, (3, 40)))
            )
            return parties

        return with_random_budget


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ordering"),
    [
        ("exactly-once", "speculative"),
        ("exactly-once", "buffered"),
        ("two-phase", "speculative"),
        ("strong-productions", "speculative"),
        ("at-least-once", "speculative"),
    ],
)
def test_outputs_do_not_depend_on_where_turns_end(name: str, ordering: str) -> None:
    for seed in range(1, 5):
        what = replace(draw_scenario(seed, name=name), policy=get_policy(name, ordering))
        assert not RandomTurnSimulation(what).run().problem, f"seed {seed}"


RECORDS = 250
WAITING = 4000
"""Bytes of outputs that may wait; a record makes more than 100."""


def flow() -> Flow:
    made = Flow("sums")
    total = ReducingState[int]("total", lambda a, b: a + b)

    def add(number: int, total: ReducingState[int]) -> str:
        total.add(number)
        return f"{number}".rjust(100)

    made.source("numbers").key_by(lambda number: number % 5).scan(add, total).sink()
    return made


def places() -> Flow:
    """Build a flow in which each record changes many slots of a state."""
    made = Flow("places")

    def put(context: Context, number: int, places: MapState[str, int]) -> Iterator[int]:
        for place in range(20):
            places[f"{number} {place}".rjust(50)] = number
        yield number

    made.source("numbers").key_by(lambda number: number % 5).process(
        put, MapState[str, int]("at")
    ).sink()
    return made


def make_cluster(mode: str, made: Flow | None = None, **options: float) -> SteppedCluster:
    inputs: list[list[tuple[int, object]]] = [[(time, time) for time in range(1, RECORDS + 1)]]
    return SteppedCluster(
        made or flow(), inputs, mode=mode, window=6, waiting_bytes=WAITING,
        interval=options.get("interval", 0.3),
    )  # fmt: skip


def taken(cluster: SteppedCluster) -> int:
    front = cluster.parties["front-0"]
    assert isinstance(front, Front)
    return front.sent_records


def nodes(cluster: SteppedCluster) -> list[Node]:
    return [party for party in cluster.parties.values() if isinstance(party, Node)]


def outputs_are_right(cluster: SteppedCluster, made: Flow | None = None) -> bool:
    expected = [item.value for item in interpret(made or flow(), cluster.inputs)]
    return sorted(map(str, cluster.values)) == sorted(map(str, expected))


@pytest.mark.parametrize("mode", POLICIES)
def test_hung_consumer_causes_back_pressure(mode: str) -> None:
    cluster = make_cluster(mode)
    cluster.run(cluster.has(5))
    cluster.silent.add("consumer")
    most = 0
    for _ in range(6000):  # far longer than the time after which stalled work counts as lost
        cluster.step()
        most = max(most, *(node.barrier.waiting_bytes for node in nodes(cluster)))
    held = taken(cluster)
    assert held < RECORDS - 20
    assert most < 2 * WAITING
    assert cluster.master.coordinator.recoveries == 0
    cluster.silent.clear()
    cluster.run(cluster.stopped, 100_000)
    assert outputs_are_right(cluster)
    assert cluster.master.coordinator.recoveries == 0


def test_long_open_epoch_triggers_an_early_snapshot() -> None:
    cluster = make_cluster("two-phase", interval=1e6)
    cluster.run(cluster.has(RECORDS // 2), 100_000)
    assert cluster.messages_of(AskSnapshot)
    assert cluster.master.coordinator.snapshots.committed > 1


def test_hung_disk_causes_back_pressure() -> None:
    cluster = make_cluster("exactly-once", places())
    cluster.run(cluster.has(5))
    cluster.held_disks.add("node-1")
    most = 0
    for _ in range(8000):
        cluster.step()
        most = max(most, *(node.pipeline.unsaved_bytes for node in nodes(cluster)))
    assert WAITING < most < 4 * WAITING
    assert taken(cluster) < RECORDS - 20
    cluster.held_disks.clear()
    cluster.run(cluster.stopped, 100_000)
    assert outputs_are_right(cluster, places())
    assert cluster.master.coordinator.recoveries == 0
