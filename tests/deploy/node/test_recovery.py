"""Start of an incarnation of a node: loading the snapshot, asking the consumer, and readiness.

A newer incarnation cancels one that is starting.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TypeVar
from unittest.mock import patch

import pytest

from driftline import Count, Session, Tumbling, run_reference
from driftline.barrier.barrier import NO_T_LAST
from driftline.deploy.node.backpressure import TurnBudget
from driftline.deploy.node.delivery import DELIVERY_RETRY_S
from driftline.deploy.node.node import Node
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import POLICIES, get_policy
from driftline.engine.snapshots.jobs import Loaded, LoadSnapshot, StoreSnapshot
from driftline.engine.state.changelog import encode_chunk
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import (
    Failed,
    FetchLast,
    Hello,
    LastBundle,
    Message,
    MessageHeader,
    Recover,
    Unloadable,
    decode,
    encode,
)
from driftline.engine.wire.role import IOJob
from driftline.simulation.scenarios.flows import two_fronts
from tests.paper.operations import Records, concatenation
from tests.stepped_cluster import SteppedCluster

M = TypeVar("M", bound=Message)
EMPTY = Loaded(b"", [])


class StartingNode:
    """Node 0 of two, which has not received a message yet."""

    def __init__(self, name: str = "exactly-once", pace: TurnBudget | None = None) -> None:
        ids = count(1)
        flow_plan = make_plan(two_fronts)
        self.node = Node(0, 2, flow_plan, get_policy(name), lambda: next(ids), budget=pace)
        self.now = 0.0

    def recover(self, incarnation: int, number: int = 0, start: int = 0) -> LoadSnapshot:
        """Begin an incarnation as the master does, and return the job that loads the snapshot."""
        self.tell("master", incarnation, Recover(incarnation, number, 0, start, ()))
        [job], self.node.jobs = self.node.jobs, []
        assert isinstance(job, LoadSnapshot)
        return job

    def tell(self, sender: str, incarnation: int, message: Message) -> None:
        self.node.receive(
            encode(MessageHeader(sender, incarnation, 0 if message.control else 1), message)
        )

    def question(self) -> FetchLast:
        """Return the node's only question to the consumer."""
        [question] = self.sent_messages(FetchLast)
        return question

    def answer(self, question: FetchLast, t_last: int = NO_T_LAST) -> None:
        last = LastBundle("barrier-0", question.incarnation, question.number, (), t_last, 0)
        self.tell("consumer", question.incarnation, last)

    def ready(self) -> bool:
        return self.node.ready

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.node.now = self.now
        self.node.tick(self.now)

    def sent_messages(self, kind: type[M]) -> list[M]:
        """Return the messages of a kind sent since the last call."""
        found = [decode(data)[1] for _, data in self.node.outbox]
        self.node.outbox.clear()
        return [message for message in found if isinstance(message, kind)]


@pytest.mark.parametrize("name", POLICIES)
def test_node_is_ready_once_its_consumer_has_answered(name: str) -> None:
    beginning = StartingNode(name)
    job = beginning.recover(1)
    beginning.pass_time(2 * DELIVERY_RETRY_S)
    assert not beginning.sent_messages(FetchLast), (
        "a node asks its consumer only after it has loaded the snapshot"
    )
    beginning.node.on_job_done(job, EMPTY)
    question = beginning.question()
    assert question.incarnation == 1
    assert not beginning.ready()
    beginning.pass_time(2 * DELIVERY_RETRY_S)
    assert beginning.sent_messages(FetchLast) == [question], "it asks again"
    beginning.answer(question)
    assert beginning.ready()
    assert [hello.ready for hello in beginning.sent_messages(Hello)] == [1]
    beginning.pass_time(2 * DELIVERY_RETRY_S)
    assert not beginning.sent_messages(FetchLast), "it has no question that needs an answer"


def test_unsolicited_consumer_answer_is_ignored() -> None:
    beginning = StartingNode()
    beginning.recover(1)
    beginning.answer(FetchLast("barrier-0", 1, (0, 63), "", 0))
    assert not beginning.ready()
    assert not beginning.node.barrier.connected


@pytest.mark.parametrize(
    "result",
    [
        SnapshotDamaged("a checksum is wrong"),
        Loaded(b"", [b"\xc1"], 4),
        Loaded(pack((3, ())), [], 4),
    ],
    ids=["told by the store", "found in a chain", "of another policy"],
)
def test_node_reports_unloadable_snapshot_until_another_is_assigned(
    result: object,
) -> None:
    beginning = StartingNode()
    beginning.node.on_job_done(beginning.recover(1, number=4), result)
    assert [(m.incarnation, m.number) for m in beginning.sent_messages(Unloadable)] == [(1, 4)]
    beginning.pass_time(1.0)
    assert len(beginning.sent_messages(Unloadable)) == 1, "the report may have been lost"
    job = beginning.recover(2, number=3)
    beginning.pass_time(1.0)
    assert not beginning.sent_messages(Unloadable)
    beginning.node.on_job_done(job, EMPTY)
    assert len(beginning.sent_messages(FetchLast)) == 1


def test_consumer_that_lacks_outputs_fails_the_run() -> None:
    beginning = StartingNode("two-phase")
    beginning.node.on_job_done(beginning.recover(1, number=4), Loaded(pack((3, ())), [], 4))
    beginning.answer(beginning.question(), t_last=2)
    [failed] = beginning.sent_messages(Failed)
    assert failed.error == "StateMismatch"
    assert not beginning.ready()


def test_restore_spans_turns_and_is_cancelled_by_a_newer_incarnation() -> None:
    """A turn ends at each reading of the clock."""
    times = count()
    beginning = StartingNode(pace=TurnBudget(make_plan(two_fronts), lambda: float(next(times))))
    [operator] = beginning.node.pipeline.tables
    chains = [encode_chunk(operator, "ids", [(key, None, key)]) for key in "abc"]
    stored = Loaded(b"", chains)

    def loaded() -> dict[object, object]:
        table = beginning.node.pipeline.tables[operator]
        return {key: list(table.states(key)[0].slots()) for key in table}

    def asked() -> list[int]:
        """Return the incarnation in which the node asks the consumer, after it has restored all."""
        turns = 0
        while not (questions := beginning.sent_messages(FetchLast)):
            turns += 1
            assert loaded() == {}, "nothing is used before it is complete"
            beginning.node.turn()
        assert turns >= len(chains)
        assert loaded() == {key: [(None, key)] for key in "abc"}
        return [question.incarnation for question in questions]

    beginning.node.on_job_done(beginning.recover(1), stored)
    assert asked() == [1]
    beginning.node.on_job_done(beginning.recover(2), stored)
    assert beginning.node.turn()
    job = beginning.recover(3)
    assert not beginning.node.turn(), "nothing of the cancelled restore remains"
    beginning.node.on_job_done(job, stored)
    assert asked() == [3]


def test_damaged_store_ends_the_run_when_a_part_is_written() -> None:
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    cluster = SteppedCluster(concatenation(), [left, []], seed=9)
    execute_job = cluster.stores["node-0"].execute_job

    def damaged(job: IOJob) -> object:
        if isinstance(job, StoreSnapshot):
            return SnapshotDamaged("state/node-0 is damaged")
        return execute_job(job)

    with patch.object(cluster.stores["node-0"], "execute_job", damaged):
        cluster.run(lambda: cluster.master.coordinator.outcome is not None)
    assert cluster.master.coordinator.error == "SnapshotDamaged: state/node-0 is damaged"


@pytest.mark.parametrize("seed", range(2))
def test_count_of_late_elements_is_exact_after_kills(seed: int) -> None:
    chance = Random(seed)
    records = [{"user": n % 7, "at": n - chance.choice((0, 0, 0, 3, 30))} for n in range(150)]

    def views(with_sink: bool) -> Flow:
        flow = Flow("views")
        keyed = flow.source("views", event_time="at", max_delay=2).key_by("user")
        windows = keyed.window(Tumbling(10))
        windows.aggregate(n=Count()).sink("rows")
        windows.late.sink("late")
        sessions = keyed.window(Session(4))
        sessions.aggregate(n=Count()).sink("rows of sessions")
        if with_sink:
            sessions.late.sink("late for sessions")
        return flow

    items = list(run_reference(views(with_sink=True), [records]))
    late = sum(item.sink == 3 for item in items)
    assert late > 20
    cluster = SteppedCluster(views(with_sink=False), [list(enumerate(records, 1))], seed, window=4)
    for rows, victim in ((20, "node-0"), (45, "master"), (60, "node-1"), (75, "front-0")):
        cluster.run(cluster.has(rows))
        cluster.crash(victim)
    cluster.run(cluster.stopped, 100_000)
    assert cluster.state is not None
    assert cluster.state.snapshots[0].late == late
