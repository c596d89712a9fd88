"""The assemblies of the policies that are compared: markers, epochs and productions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.acker.tracker import token
from driftline.deploy.node.compared import Alignment, Channel
from driftline.deploy.node.components import Components
from driftline.deploy.node.node import Node
from driftline.deploy.roles.front import Front
from driftline.engine.errors import Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.keygroups import Owners
from driftline.engine.labels import Label
from driftline.engine.policy import policy
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.snapshots.store import PartStore
from driftline.engine.sources import RetainedSource
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
    Marker,
    Message,
    Progress,
    Promise,
    Recover,
    Start,
    decode,
    encode,
)
from driftline.engine.wire.party import Job, Party
from driftline.index.flow import inverted_index
from driftline.simulation.world.disks import MemoryKeyValue


def test_the_part_that_outputs_wait_for_does_not_wait_for_a_long_merge() -> None:
    flow_plan = plan(inverted_index())
    ids = iter(range(1, 100))
    components = Components(flow_plan, policy("two-phase"), 0, (0,), lambda: next(ids))
    assembly = components.assembly()
    store = PartStore(MemoryKeyValue("store"), flow_plan.flow, merge_at=4, rows_at_once=1)
    for number in range(1, 9):
        assembly.mark("front-0", Marker(0, 0, number))
        for port in flow_plan.ports:
            if port.vertex.keyed:
                assembly.enter(port.number, [])
                labels: list[Label] = [(number, 0, child) for child in range(20)]
                values: list[object] = [
                    (f"w{number}-{child}", f"d{number}", (1,)) for child in range(20)
                ]
                assembly.chains.entries[port.number].push(labels, values, None)
            assert assembly.ends_epoch(port.number)
            assembly.end_epoch(port.number)
        meta = assembly.meta(number)
        capture = assembly.capture(number)
        while capture.step():
            pass
        store.carry_out(StoreSnapshot(number, capture.segments, meta))
    job = assembly.commit(8, 7)
    steps = 1
    while store.carry_out(job):
        steps += 1
    assert steps > 20, "between two steps another part can be written"


CHANNELS: list[Channel] = [("node-0", 0), ("node-0", 1), ("node-1", 0)]

sent = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["frame", "frame", "marker"])))
"""What arrives: (channel, what)"""


def is_complete(alignment: Alignment[str]) -> bool:
    return alignment.complete


def work_off(alignment: Alignment[tuple[int, int]], arrivals: list[tuple[int, str]]) -> list[int]:
    """Hand over what arrives; the sizes of the epochs that ended, then of the open one.

    Checks that each epoch holds exactly what came before the marker on each channel.
    """
    epoch_of = [1] * len(CHANNELS)
    here: list[tuple[int, int]] = []
    sizes: list[int] = []
    for channel, what in arrivals:
        if what == "frame":
            frame = (channel, epoch_of[channel])
            if alignment.admit(CHANNELS[channel], frame):
                here.append(frame)
            continue
        if epoch_of[channel] > len(sizes) + 1:
            continue  # one epoch is under way at a time
        alignment.mark(CHANNELS[channel], epoch_of[channel])
        epoch_of[channel] += 1
        if alignment.complete:
            assert alignment.epoch == len(sizes) + 1
            assert {epoch for _, epoch in here} <= {alignment.epoch}
            sizes.append(len(here))
            here = alignment.next_epoch()
    return [*sizes, len(here)]


@given(sent)
def test_aligned_an_epoch_is_exactly_what_came_before_the_markers(
    arrivals: list[tuple[int, str]],
) -> None:
    alignment = Alignment[tuple[int, int]](set(CHANNELS), aligned=True)
    sizes = work_off(alignment, arrivals)
    markers = [0] * len(CHANNELS)
    wanted: dict[int, int] = {}
    for channel, what in arrivals:
        if what == "frame":
            wanted[markers[channel]] = wanted.get(markers[channel], 0) + 1
        elif markers[channel] <= min(markers):
            markers[channel] += 1
    assert sizes[:-1] == [wanted.get(epoch, 0) for epoch in range(min(markers))]


def test_not_aligned_nothing_has_to_wait() -> None:
    alignment = Alignment[str](set(CHANNELS), aligned=False)
    alignment.mark(CHANNELS[0], 1)
    assert alignment.admit(CHANNELS[0], "of the next epoch")
    assert not is_complete(alignment)
    for channel in CHANNELS[1:]:
        alignment.mark(channel, 1)
    assert is_complete(alignment)
    assert alignment.next_epoch() == []


def test_what_had_to_wait_comes_in_its_order_of_arrival() -> None:
    alignment = Alignment[str](set(CHANNELS), aligned=True)
    for channel in CHANNELS[:2]:
        alignment.mark(channel, 7)
    assert not alignment.admit(CHANNELS[1], "a")
    assert alignment.admit(CHANNELS[2], "b")
    assert not alignment.admit(CHANNELS[0], "c")
    assert not alignment.admit(CHANNELS[1], "d")
    assert not is_complete(alignment)
    alignment.mark(CHANNELS[2], 7)
    assert is_complete(alignment)
    assert alignment.epoch == 7
    assert alignment.next_epoch() == ["a", "c", "d"]
    assert not is_complete(alignment)
    assert alignment.admit(CHANNELS[0], "e")
    assert alignment.next_epoch() == []


def test_a_marker_from_where_nothing_should_come_is_an_error() -> None:
    alignment = Alignment[str](set(CHANNELS), aligned=True)
    with pytest.raises(AssertionError, match="does not feed this port"):
        alignment.mark(("node-9", 0), 1)


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


class Log(RetainedSource):
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
