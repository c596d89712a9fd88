"""Node: turns, and received and sent messages."""

from __future__ import annotations

from itertools import count
from typing import TypeVar

import pytest

from driftline.deploy.node.delivery import DELIVERY_RETRY_S
from driftline.deploy.node.node import Node
from driftline.engine.event_time import iso_text
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.keygroups import Owners
from driftline.engine.labels import INFINITY
from driftline.engine.operators.aggregates import Count
from driftline.engine.operators.windows import Tumbling
from driftline.engine.policy import get_policy
from driftline.engine.snapshots.jobs import Loaded
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.messages import (
    Acknowledge,
    AskPromise,
    Bundle,
    BundleStored,
    Failed,
    FetchLast,
    Frame,
    Goodbye,
    Hello,
    LastBundle,
    Message,
    MessageHeader,
    Promise,
    Recover,
    Stop,
    decode,
    encode,
)
from driftline.simulation.scenarios.flows import two_fronts
from tests.stepped_cluster import SteppedCluster

INCARNATION = 1

NOW_US = 1_700_000_000_000_000
"""Time of day at which live records arrive."""

M = TypeVar("M", bound=Message)


class RunningNode:
    """Node 0 of two, in its first incarnation, without other roles."""

    def __init__(self) -> None:
        ids = count(1)
        self.node = Node(0, 2, make_plan(two_fronts), get_policy("exactly-once"), lambda: next(ids))
        self.sequences: dict[str, int] = {}
        self.receive_from("master", Recover(INCARNATION, 0, 0, 0, ()))
        [load] = self.node.jobs
        self.node.on_job_done(load, Loaded(b"", []))
        self.receive_from("consumer", LastBundle("barrier-0", INCARNATION, 0, (), -1, 0))
        assert self.node.running
        self.node.outbox.clear()

    def receive_from(self, sender: str, message: Message) -> None:
        number = 0 if message.control else self.sequences.get(sender, 0) + 1
        self.sequences[sender] = number or self.sequences.get(sender, 0)
        self.node.receive(encode(MessageHeader(sender, INCARNATION, number), message))

    def sent_messages(self) -> list[tuple[str, Message]]:
        """Run the node until it has no work left; return the messages that it sends."""
        sent_messages: list[tuple[str, Message]] = []
        while self.node.turn() or self.node.outbox:
            sent_messages += [(to, decode(data)[1]) for to, data in self.node.outbox]
            self.node.outbox.clear()
        return sent_messages


def test_idle_front_is_asked_for_a_promise_when_it_blocks_frontiers() -> None:
    running = RunningNode()
    running.receive_from("front-1", Promise(1, 0, 1, 1))
    running.receive_from("node-1", Acknowledge((), ((0, 0, 8),), 0))
    assert ("front-1", AskPromise(8)) in running.sent_messages()
    assert running.sent_messages() == []  # one request is enough
    running.receive_from("front-1", Promise(1, 1, 8, 8))
    running.receive_from("node-1", Acknowledge((), ((0, 8, 9),), 0))
    assert ("front-1", AskPromise(9)) in running.sent_messages()


def test_acks_inside_a_frame_count_like_separate_messages() -> None:
    running = RunningNode()
    running.receive_from("front-1", Promise(1, 0, 1, 1))
    [shuffled] = [port.number for port in running.node.plan.ports if port.upstreams]
    batch = (1, -1, ((5, 0),)), pack_rows([{"id": 1, "key": OURS, "text": "x"}]), ()
    running.receive_from("node-1", Frame(0, shuffled, 5, 99, (batch,), (), (), ((0, 0, 8),)))
    assert ("front-1", AskPromise(8)) in running.sent_messages()


def test_malformed_frame_is_rejected_as_a_whole() -> None:
    running = RunningNode()
    [shuffled] = [port.number for port in running.node.plan.ports if port.upstreams]
    batch = (1, -1, ((5, 0),)), pack_rows([{"id": 1, "key": OURS, "text": "x"}]), ()
    running.receive_from("node-1", Frame(0, shuffled, 5, 99, (batch,), (), ((99, 1, 1),)))
    running.sent_messages()
    assert (running.node.malformed, running.node.pipeline.figures()["elements"]) == (1, 0)


def test_undecodable_payload_fails_the_run() -> None:
    running = RunningNode()
    batch = (1, -1, ((5, 0),)), b"\xc1", ()
    running.receive_from("front-0", Frame(0, 0, 5, 0, (batch,), (0, 6)))
    [failed] = [message for _, message in running.sent_messages() if isinstance(message, Failed)]
    assert (failed.error, "msgpack" in failed.text) == ("MalformedMessage", True)


def test_input_received_during_output_is_processed_without_new_messages() -> None:
    running = RunningNode()
    owners = Owners(2, two_fronts.groups)
    ours = next(key for key in "abcdefgh" if owners.owners_of([key]) == [0])
    record = {"id": 1, "key": ours, "text": "x" * 9}

    def elements() -> int:
        return running.node.pipeline.figures()["elements"]

    def frame(time: int) -> Frame:
        batch = (1, -1, ((time, 0),)), pack_rows([record]), ()
        return Frame(0, 0, time, 0, (batch,), (time, time + 1))

    running.receive_from("front-0", Promise(0, 0, 5, INFINITY))
    running.receive_from("front-1", Promise(1, 0, INFINITY, INFINITY))
    running.receive_from("front-0", frame(5))
    [first] = [message for _, message in running.sent_messages() if isinstance(message, Bundle)]
    running.receive_from("front-0", frame(6))
    assert not [message for _, message in running.sent_messages() if isinstance(message, Bundle)]
    running.receive_from("consumer", BundleStored("barrier-0", INCARNATION, first.t_last))
    assert running.node.turn(), "the second bundle leaves"
    [second] = [decode(data)[1] for _, data in running.node.outbox]
    assert isinstance(second, Bundle)
    running.node.outbox.clear()
    assert elements() == 2
    running.receive_from("front-0", frame(7))
    running.sent_messages()
    assert elements() == 3


# The consumer ---------------------------------------------------------------------------------


class DeliveringNode(RunningNode):
    """Node that makes one bundle of each record; after a timeout it asks the consumer again."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.receive_from("front-1", Promise(1, 0, INFINITY, INFINITY))
        self.next = 5
        self.receive_from("front-0", Promise(0, 0, self.next, INFINITY))

    def deliver(self) -> Bundle:
        """Let the node send its next bundle, and return it."""
        record = {"id": self.next, "key": OURS, "text": "x"}
        batch = (1, -1, ((self.next, 0),)), pack_rows([record]), ()
        self.receive_from(
            "front-0", Frame(0, 0, self.next, 0, (batch,), (self.next, self.next + 1))
        )
        self.next += 1
        return only_message(Bundle, self.sent_messages())

    def await_question(self) -> FetchLast:
        """Wait until the node asks the consumer, and return the question."""
        self.now += 2 * DELIVERY_RETRY_S
        self.node.tick(self.now)
        return only_message(FetchLast, self.sent_messages())

    def answer(self, question: FetchLast, t_last: int) -> list[tuple[str, Message]]:
        """Answer with `t_last`, and return the messages that the node then sends."""
        self.receive_from(
            "consumer", LastBundle("barrier-0", INCARNATION, question.number, (), t_last, 0)
        )
        return self.sent_messages()

    def stored(self, bundle: Bundle) -> None:
        self.receive_from("consumer", BundleStored("barrier-0", INCARNATION, bundle.t_last))


OURS = next(key for key in "abcdefgh" if Owners(2, two_fronts.groups).owners_of([key]) == [0])


def only_message(kind: type[M], sent_messages: list[tuple[str, Message]]) -> M:
    """Return the only message of a kind."""
    [found] = [message for _, message in sent_messages if isinstance(message, kind)]
    return found


def test_slow_answer_counts_after_the_question_was_repeated() -> None:
    """If it did not count, a consumer slower than `DELIVERY_RETRY_S` could never answer."""
    running = DeliveringNode()
    bundle = running.deliver()
    asked = running.await_question()
    assert running.await_question() == asked
    assert ("consumer", bundle) in running.answer(asked, -1)


def test_consumer_that_has_lost_outputs_is_rejected() -> None:
    running = DeliveringNode()
    running.stored(running.deliver())
    running.deliver()
    failed = only_message(Failed, running.answer(running.await_question(), -1))
    assert failed.error == "StateMismatch"
    assert "without outputs that it had stored" in failed.text
    assert not running.node.running


# The end --------------------------------------------------------------------------------------


def test_stopped_node_sends_only_goodbye() -> None:
    running = RunningNode()
    running.receive_from("master", Stop("", "", ""))
    assert running.node.ended
    assert ("master", Goodbye("")) in messages_at(running, 1.0)
    running.receive_from("front-0", Promise(0, 0, 5, INFINITY))
    for now in (2.0, 3.0):
        kinds = {type(message) for _, message in messages_at(running, now)}
        assert Goodbye in kinds
        assert Hello not in kinds


def messages_at(running: RunningNode, now: float) -> list[tuple[str, Message]]:
    running.node.tick(now)
    return running.sent_messages()


@pytest.mark.parametrize("begin", [NOW_US, 1], ids=["live", "file"])
def test_event_time_in_the_future_is_logged_once_for_live_records(
    begin: int, caplog: pytest.LogCaptureFixture
) -> None:
    flow = Flow("views")
    views = flow.source("views", event_time="at", unit="us")
    views.key_by("user").window(Tumbling(10)).aggregate(n=Count()).sink()
    day = 24 * 3600 * 1_000_000
    ahead = {5: day, 7: day + 1, 9: 3 * day, 11: 4 * day}
    records: list[tuple[int, object]] = [
        (begin + n, {"user": n % 3, "at": begin + n + ahead.get(n, 0)}) for n in range(60)
    ]
    cluster = SteppedCluster(flow, [records], nodes=1)
    cluster.run(cluster.has(1))
    cluster.crash("front-0")
    cluster.run(cluster.stopped, 60_000)
    found = [r.fields for r in caplog.records if r.fields["event"] == "future-event-time"]  # type: ignore[attr-defined]
    assert found == [
        {
            "event": "future-event-time",
            "source": "views",
            "label": str([begin + 7, 0]),
            "event_time": iso_text(begin + 7 + day + 1),
        }
    ] * (begin == NOW_US)
