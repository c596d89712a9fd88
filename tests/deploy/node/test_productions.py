"""Strong productions in one node and one front: when messages leave, and which are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TypeVar

from driftline.acker.tracker import token
from driftline.deploy.node.node import Node
from driftline.deploy.parties.front import Front
from driftline.deploy.simulation.world.disks import MemoryKeyValue
from driftline.engine.errors import Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.keygroups import Owners
from driftline.engine.labels import Label
from driftline.engine.policy import policy
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.snapshots.store import PartStore
from driftline.engine.sources import LiveSource
from driftline.engine.state.managed import ValueState
from driftline.engine.wire.codec import pack_rows, unpack_rows
from driftline.engine.wire.label_columns import encode_labels
from driftline.engine.wire.messages import (
    Acknowledge,
    AskPromise,
    Bundle,
    Frame,
    Header,
    LastBundle,
    Message,
    Progress,
    Promise,
    Recover,
    Start,
    decode,
    encode,
)
from driftline.engine.wire.party import Job, Party

M = TypeVar("M", bound=Message)

STRONG = policy("strong-productions")


def _join(text: str, joined: ValueState[str]) -> str:
    joined.set(joined.get("") + text)
    return joined.get("")


FLOW = Flow("concatenation")
FLOW.source("in").key_by(0).scan(_join, ValueState("joined")).sink()
FIRST, SECOND = plan(FLOW).ports

OWNERS = Owners(2, FLOW.groups)
OURS = next(letter for letter in "abcdefgh" if OWNERS.of([letter]) == [0])
THEIRS = next(letter for letter in "abcdefgh" if OWNERS.of([letter]) == [1])
"""The first letter of a word decides which of two nodes owns it."""


def said(party: Party) -> list[tuple[str, Message]]:
    """The messages that a party sends until it has no work left."""
    found: list[tuple[str, Message]] = []
    while party.turn() or party.outbox:
        found += [(to, decode(data)[1]) for to, data in party.outbox]
        party.outbox.clear()
    return found


def of(kind: type[M], found: list[tuple[str, Message]]) -> list[M]:
    return [message for _, message in found if isinstance(message, kind)]


class Single:
    """Node 0 of two with its disk, without other parties."""

    def __init__(self) -> None:
        self.store = PartStore(MemoryKeyValue("disk"), FLOW)
        self.ids = count(1)
        self.incarnation = 0
        self.t_last = -1
        self.recover()

    def recover(self, start: int = 0) -> None:
        """A new process, and a new incarnation."""
        self.incarnation += 1
        self.node = Node(0, 2, plan(FLOW), STRONG, lambda: next(self.ids))
        self.sequences: dict[str, int] = {}
        self.tell("master", Recover(self.incarnation, 0, 0, start, ()))
        self.write()
        self.tell("consumer", LastBundle("barrier-0", self.incarnation, 0, (), self.t_last, 0))
        assert self.node.running
        self.node.outbox.clear()

    def tell(self, sender: str, message: Message) -> None:
        number = 0 if message.control else self.sequences.get(sender, 0) + 1
        self.sequences[sender] = number or self.sequences.get(sender, 0)
        self.node.receive(encode(Header(sender, self.incarnation, number), message))

    def records(self, *records: tuple[int, str], since: int = 0) -> None:
        """A frame of the front."""
        labels: list[Label] = [(time, 0) for time, _ in records]
        values = [word for _, word in records]
        covers = (since, records[-1][0] + 1)
        batch = encode_labels(labels), pack_rows(values), ()
        self.tell("front-0", Frame(0, FIRST.number, records[0][0], 0, (batch,), covers))

    def write(self, fails: bool = False) -> list[Job]:
        """Let the disk do its jobs."""
        jobs, self.node.jobs = self.node.jobs, []
        for job in jobs:
            result = Unavailable("full") if fails else self.store.carry_out(job)
            self.node.done(job, result)
        return jobs


def words(frame: Frame) -> list[object]:
    return [word for _, payloads, _ in frame.batches for word in unpack_rows(payloads)]


def test_nothing_leaves_before_it_is_durable_and_all_of_it_then() -> None:
    single = Single()
    single.records((1, OURS), (2, THEIRS))
    before = said(single.node)
    assert not of(Frame, before)
    assert not of(Bundle, before)
    assert not of(Acknowledge, before)
    single.write()
    after = said(single.node)
    assert [words(frame) for frame in of(Frame, after)] == [[THEIRS]]
    assert len(of(Bundle, after)) == 1
    [acknowledged] = [m for m in of(Acknowledge, after) if m.covered]
    assert acknowledged.covered == ((0, 0, 3),)
    assert [cell[2] for cell in acknowledged.cells] == [frame.id for frame in of(Frame, after)]


def test_while_a_production_is_written_the_next_one_grows() -> None:
    single = Single()
    for time in (1, 2, 3):
        single.records((time, THEIRS * time), since=time)
        said(single.node)
    assert [type(job) for job in single.write()] == [StoreSnapshot]
    assert len(of(Frame, said(single.node))) == 1
    assert len(single.write()) == 1, "one write for both that waited"
    assert [words(frame) for frame in of(Frame, said(single.node))] == [[THEIRS * 2], [THEIRS * 3]]


def test_what_could_not_be_written_is_written_with_the_next_production() -> None:
    single = Single()
    single.records((1, THEIRS))
    said(single.node)
    single.write(fails=True)
    assert not of(Frame, said(single.node))
    assert single.node.jobs == [], "a disk that is full is not asked again and again"
    single.tell("master", Progress(0, 0))
    assert not of(Frame, said(single.node))
    single.write()
    assert len(of(Frame, said(single.node))) == 1
    single.recover()
    single.tell("master", Progress(0, 0))
    assert len(of(Frame, said(single.node))) == 1


def test_after_a_recovery_frames_are_sent_again_once_all_are_there() -> None:
    single = Single()
    single.records((1, THEIRS))
    said(single.node)
    single.write()  # and no turn: it crashes before anything has left
    single.recover()
    assert not of(Frame, said(single.node))
    single.tell("master", Progress(0, 0))
    again = said(single.node)
    [frame] = of(Frame, again)
    assert words(frame) == [THEIRS]
    assert of(Acknowledge, again)[0].cells == (token(0, 0), (SECOND.stage, 1, frame.id))
    single.tell("master", Progress(0, 0))
    assert not of(Frame, said(single.node)), "once is enough"
    single.recover(start=2)  # by now the receiver has made something durable of it
    single.tell("master", Progress(2, 0))
    assert not of(Frame, said(single.node))


def test_records_that_were_had_are_dropped_and_the_rest_is_tracked_under_its_own_time() -> None:
    single = Single()
    single.records((1, OURS), (2, THEIRS))
    said(single.node)
    single.write()
    single.recover()
    single.tell("master", Progress(0, 0))
    said(single.node)
    single.records((1, OURS), (2, THEIRS), (3, THEIRS + "new"))
    said(single.node)
    single.write()
    found = said(single.node)
    [frame] = of(Frame, found)
    assert (words(frame), frame.time) == ([THEIRS + "new"], 3)
    assert [m.covered for m in of(Acknowledge, found) if m.covered] == [((0, 0, 4),)]


def test_a_frame_that_was_had_is_acknowledged_and_dropped() -> None:
    single = Single()
    batch = encode_labels([(4, 0)]), pack_rows([OURS]), ()
    frame = Frame(FIRST.number, SECOND.number, 4, 99, (batch,), ())
    single.tell("node-1", frame)
    said(single.node)
    single.write()
    [bundle] = of(Bundle, said(single.node))
    single.t_last = bundle.t_last
    single.recover()
    single.tell("master", Progress(0, 0))
    said(single.node)
    single.tell("node-1", frame)
    said(single.node)
    single.write()
    found = said(single.node)
    assert not of(Bundle, found)
    assert of(Acknowledge, found)[0].cells == ((SECOND.stage, 4, 99),)


# The front ------------------------------------------------------------------------------------


class Log(LiveSource):
    """Records that are durable when a test says so."""

    def __init__(self) -> None:
        self.records: list[tuple[int, object]] = []
        self.durable = 1
        self.clock = 0

    def read(self, start: int) -> Iterator[tuple[int, object] | None]:
        at = 0
        while True:
            if at < len(self.records):
                at += 1
                yield self.records[at - 1]
            else:
                yield None

    def move_to(self, time: int) -> int:
        self.clock = max(self.clock, time)
        return self.clock


def test_a_live_record_leaves_once_it_will_not_be_forgotten() -> None:
    log = Log()
    front = Front(0, 1, plan(FLOW), STRONG, log, lambda: 1)
    front.receive(encode(Header("master", 1, 0), Start(1, 1, ())))
    log.records += [(5, "a"), (6, "b")]
    assert not of(Frame, said(front))
    front.receive(encode(Header("master", 1, 1), AskPromise(20)))
    said(front)
    assert log.clock == 0, "the clock must not pass a record that waits"
    log.durable = 6
    assert [frame.time for frame in of(Frame, said(front))] == [5]
    log.durable = 7
    found = said(front)
    assert [frame.time for frame in of(Frame, found)] == [6]
    assert [promise.until for promise in of(Promise, found)][-1] == 20
