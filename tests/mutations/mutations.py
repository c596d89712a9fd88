"""Mutations: context managers that take one safeguard out of the engine.

Some safeguards back each other up:

- A consumer ignores a bundle that it has. That hides a missing filter at the barrier only where the
  repeated bundle is cut as the first one was, so either is missed without the other.
- What a gap loses is also noticed by the acker, as work that does not end. It takes a front whose
  frame and promise are lost together (exactly-once), or a marker that arrives while the frame
  before it does not (two-phase), for the gap to be the only sign.
- The fence of consumers matters only to what an earlier process had sent and what comes after its
  successor has asked for the last bundle. That is rare, and takes the most seeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import chain
from unittest.mock import patch

import driftline.coordinator.registry
import driftline.deploy.parties.master
import driftline.deploy.work.assembly
import driftline.engine.order.speculative
import driftline.engine.sinks.commit_record
import driftline.engine.snapshots.store
import driftline.engine.sources.logs.inputlog
from driftline.acker.tracker import Tracker
from driftline.barrier.barrier import NOTHING
from driftline.barrier.epochs import EpochBarrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.coordinator.coordinator import Coordinator, Phase, _Snapshot
from driftline.coordinator.farewell import Farewell
from driftline.coordinator.registry import ClusterState
from driftline.deploy.node.node import Node
from driftline.deploy.node.peers import NOTHING_NEW, Peers
from driftline.deploy.parties.consumer import ConsumerServer
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.intake import Intake
from driftline.deploy.parties.master import Master
from driftline.deploy.parties.member import Member
from driftline.deploy.work.assembly import Post, ProductionAssembly
from driftline.deploy.work.blocks import Batch, Waiting
from driftline.deploy.work.leaving import Leaving
from driftline.deploy.work.tracking import Acks, Cells, Intervals
from driftline.engine.compared.alignment import Alignment
from driftline.engine.compared.ledger import Ledger
from driftline.engine.errors import Unavailable
from driftline.engine.labels import INFINITY
from driftline.engine.order.keyed import Keyed
from driftline.engine.order.speculative import Speculative
from driftline.engine.order.steps import Signs, Values
from driftline.engine.policy import Policy
from driftline.engine.sinks.jsonl import JsonLinesConsumer
from driftline.engine.sinks.memory import MemoryConsumer
from driftline.engine.snapshots.jobs import Capture
from driftline.engine.sources.logs.received import Receipt, ReceivedSource
from driftline.engine.wire.label_columns import Labels
from driftline.engine.wire.messages import (
    AskPromise,
    Bundle,
    BundleStored,
    Committed,
    Frame,
    Header,
    Message,
    Prepared,
    PrepareFailed,
    Promise,
    Stop,
)
from driftline.engine.wire.party import Job, Party

Mutation = Callable[[], AbstractContextManager[object]]


@contextmanager
def t_last_is_not_asked_for() -> Iterator[None]:
    """The barrier releases what the consumer already has."""
    ask = OrderedBarrier.last

    def last(self: OrderedBarrier, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        first = not self.connected
        ask(self, t_last, checksum, blobs)
        if first:
            self.t_last = NOTHING

    with patch.object(OrderedBarrier, "last", last):
        yield


@contextmanager
def t_last_is_not_asked_for_nor_checked() -> Iterator[None]:
    """As above, and the consumer stores whatever comes, too."""

    def store(self: ConsumerServer, sender: str, bundle: Bundle) -> None:
        self._consumer(bundle.barrier).deliver(bundle)
        self.send(sender, BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last))

    deliver = MemoryConsumer.deliver

    def deliver_anything(self: MemoryConsumer, bundle: Bundle) -> None:
        self._records.pop(bundle.barrier, None)
        deliver(self, bundle)

    with (
        t_last_is_not_asked_for(),
        patch.object(ConsumerServer, "_store", store),
        patch.object(MemoryConsumer, "deliver", deliver_anything),
    ):
        yield


@contextmanager
def acknowledgement_is_split() -> Iterator[None]:
    """An id is acknowledged a turn before the ids of the frames sent because of it."""
    count, turn = Node._count, Node.turn
    late: dict[Node, list[Cells]] = {}

    def count_later(self: Node, port: int, time: int, id: int) -> None:
        tracking = self._tracking
        acks, tracking.acks = tracking.acks, Acks()
        count(self, port, time, id)
        late.setdefault(self, []).append(tracking.acks.take()[0])
        tracking.acks = acks

    def turn_later(self: Node) -> bool:
        before = late.pop(self, [])
        more = turn(self)
        if not self.running:
            late.pop(self, None)
            return more
        for cell in chain.from_iterable(before):
            self._tracking.acks.add(*cell)
        return more or self in late or bool(before)

    with patch.object(Node, "_count", count_later), patch.object(Node, "turn", turn_later):
        yield


def _receiving(
    mutated: Callable[[Party, Header, Callable[[Party, Header], bool]], bool],
) -> AbstractContextManager[object]:
    is_next = Party._is_next
    return patch.object(Party, "_is_next", lambda self, header: mutated(self, header, is_next))


def incarnation_is_not_checked() -> AbstractContextManager[object]:
    """Messages of earlier incarnations are handled."""
    return _receiving(
        lambda party, header, is_next: (
            header.incarnation != party.incarnation or is_next(party, header)
        )
    )


def gaps_are_not_noticed() -> AbstractContextManager[object]:
    """A channel goes on where something was lost."""

    def mutated(party: Party, header: Header, is_next: Callable[[Party, Header], bool]) -> bool:
        if header.incarnation == party.incarnation:
            seen = party._seen.get(header.sender, 0)
            party._seen[header.sender] = max(seen, header.sequence - 1)
        return is_next(party, header)

    return _receiving(mutated)


def repeated_batches_are_applied() -> AbstractContextManager[object]:
    """The master applies a repeated message again."""
    return _receiving(
        lambda party, header, is_next: (
            is_next(party, header)
            or (
                party.name == "master"
                and header.incarnation == party.incarnation
                and header.sender not in party._broken
            )
        )
    )


def nothing_is_undone() -> AbstractContextManager[object]:
    """Late elements are applied to the state that later ones have left."""
    return patch.object(driftline.engine.order.speculative, "undo", lambda changes: None)


def tombstones_are_not_sent() -> AbstractContextManager[object]:
    """Outputs that are no longer true are not taken back."""
    emit = Keyed.emit

    def mutated(
        self: Keyed, labels: Labels, keys: list[object], results: Values, signs: Signs
    ) -> None:
        if signs is not None:
            kept = [i for i, sign in enumerate(signs) if sign > 0]
            labels, results = [labels[i] for i in kept], [results[i] for i in kept]
            keys, signs = [keys[i] for i in kept], [1] * len(kept)
        emit(self, labels, keys, results, signs)

    return patch.object(Keyed, "emit", mutated)


def first_prepared_commits() -> AbstractContextManager[object]:
    """A snapshot does not wait for all nodes."""
    answered = Coordinator._answered

    def mutated(self: Coordinator, snapshot: _Snapshot, sender: str) -> None:
        if self._writing is None:
            snapshot.waiting.clear()
        answered(self, snapshot, sender)

    return patch.object(Coordinator, "_answered", mutated)


def commit_is_told_before_it_is_written() -> AbstractContextManager[object]:
    """Nodes learn of a commit that the registry may never hold."""
    write = Coordinator._write

    def mutated(self: Coordinator, state: ClusterState) -> None:
        write(self, state)
        if self.phase is Phase.RUNNING and self._snapshot is not None:
            self._tell(self.nodes, Committed(self._snapshot.number, 0, 0))

    return patch.object(Coordinator, "_write", mutated)


def markers_are_not_aligned() -> AbstractContextManager[object]:
    """What follows a marker on one channel is worked off before the others' markers."""
    return patch.object(Alignment, "admit", lambda self, channel, frame: True)


def durability_is_not_waited_for() -> AbstractContextManager[object]:
    """Outputs leave for inputs that may be forgotten."""
    promise = Tracker.promise

    def mutated(self: Tracker, front: int, since: int, until: int, durable: int) -> None:
        promise(self, front, since, until, INFINITY)

    return patch.object(Tracker, "promise", mutated)


def blocks_are_closed_too_early() -> AbstractContextManager[object]:
    """What may still have to be undone is dropped."""
    close = Speculative.close
    return patch.object(Speculative, "close", lambda self, frontier: close(self, INFINITY))


def outputs_count_as_delivered_when_ready() -> AbstractContextManager[object]:
    """A snapshot may cover outputs that no consumer has."""
    return patch.object(OrderedBarrier, "delivered", property(lambda self: self.moved_to + 1))


def frames_cover_their_whole_turn() -> AbstractContextManager[object]:
    """A frame also covers roots that left in the same turn for other nodes."""
    send = Front.send

    def mutated(self: Front, to: str, message: Message) -> None:
        if isinstance(message, Frame):
            message = replace(message, covers=(message.covers[0], self.next))
        send(self, to, message)

    return patch.object(Front, "send", mutated)


def outputs_do_not_wait_for_their_own_stage() -> AbstractContextManager[object]:
    """Outputs leave although elements that have come may still give some before them."""
    return patch.object(Waiting, "first", lambda self, stage: INFINITY)


def acknowledgements_overtake_frames() -> AbstractContextManager[object]:
    """Others come to know that a stage is done before they have what it sent them."""
    acknowledge = Peers.acknowledge

    def mutated(self: Peers, cells: Cells, covered: Intervals) -> Post:
        late = acknowledge(self, (), ())
        return [*acknowledge(self, cells, covered), *late]

    return patch.object(Peers, "acknowledge", mutated)


def intervals_count_across_gaps() -> AbstractContextManager[object]:
    """The acker takes the end of any interval for the end of what is covered."""

    def mutated(self: Tracker, front: int, since: int, until: int) -> None:
        self._next[front] = max(self._next[front], until)

    return patch.object(Tracker, "_cover", mutated)


def checksums_are_not_compared() -> AbstractContextManager[object]:
    """Torn and rotten parts of snapshots are loaded."""
    return patch.object(driftline.engine.snapshots.store, "crc32", lambda data: 0)


@contextmanager
def checksums_of_records_are_not_compared() -> Iterator[None]:
    """A registry, an input log or the progress of a consumer is read whatever has become of it."""

    def crc32(data: bytes, before: int = 0) -> int:
        return 0

    with (
        patch.object(driftline.coordinator.registry, "crc32", crc32),
        patch.object(driftline.engine.sources.logs.inputlog, "crc32", crc32),
        patch.object(driftline.engine.sinks.commit_record, "crc32", crc32),
    ):
        yield


def consumers_have_no_fence() -> AbstractContextManager[object]:
    """A bundle of an earlier incarnation is stored."""
    return patch.object(ConsumerServer, "_is_fenced_off", lambda self, message: False)


# The end of a run ------------------------------------------------------------------------------


def the_end_is_told_before_it_is_written() -> AbstractContextManager[object]:
    """Members end because of a decision that the next master may not find."""
    stop = Coordinator.stop

    def mutated(self: Coordinator, error: str = "", text: str = "") -> None:
        stop(self, error, text)
        self._tell_outcome(self.nodes + self.fronts)

    return patch.object(Coordinator, "stop", mutated)


def the_end_is_told_once() -> AbstractContextManager[object]:
    """Who was not there when it was told, or was and died of it, never hears of it."""
    return patch.object(Farewell, "over", lambda self, now: True)


def any_run_may_be_over() -> AbstractContextManager[object]:
    """A member takes the end of another run for its own."""
    handle = Member.handle

    def mutated(self: Member, sender: str, message: Message) -> None:
        if isinstance(message, Stop):
            message = replace(message, run=self.run)
        handle(self, sender, message)

    return patch.object(Member, "handle", mutated)


@contextmanager
def an_earlier_run_has_ended_this_one() -> Iterator[None]:
    """The same command, given again, does nothing."""
    begin = Coordinator.__init__

    def mutated(
        self: Coordinator,
        nodes: int,
        fronts: int,
        policy: Policy,
        state: ClusterState,
        interval: float,
        run: str,
    ) -> None:
        if state.outcome is not None:
            state = replace(state, outcome=replace(state.outcome, run=run))
        begin(self, nodes, fronts, policy, state, interval, run)

    with patch.object(Coordinator, "__init__", mutated):
        yield


def channels_fall_silent() -> AbstractContextManager[object]:
    """Without label order nothing is said where there is nothing to say: what was lost last is lost
    without anybody noticing."""
    send = Party.send

    def mutated(self: Party, to: str, message: Message) -> None:
        if message is not NOTHING_NEW and message not in (Promise(0, 0, 0, 0), Promise(1, 0, 0, 0)):
            send(self, to, message)

    return patch.object(Party, "send", mutated)


# Strong productions ----------------------------------------------------------------------------


def frames_that_were_had_are_worked_off() -> AbstractContextManager[object]:
    """What a node sends again is not known by its id."""
    return patch.object(Ledger, "has_had", lambda self, time, id: False)


def records_that_were_had_are_worked_off() -> AbstractContextManager[object]:
    """What a front replays is not known by its time."""
    return patch.object(Ledger, "next_of", lambda self, front: 0)


def frames_leave_before_they_are_durable() -> AbstractContextManager[object]:
    """A frame is sent as soon as it is made."""

    def mutated(self: ProductionAssembly, to: str, frame: Frame) -> bool:
        self.ledger.keep_frame(to, frame)
        return False

    return patch.object(ProductionAssembly, "keep", mutated)


def _when_written(mutated: Callable[[ProductionAssembly], None]) -> AbstractContextManager[object]:
    capture = ProductionAssembly.capture

    def mutated_capture(self: ProductionAssembly, time: int) -> Capture:
        captured = capture(self, time)
        mutated(self)
        return captured

    return patch.object(ProductionAssembly, "capture", mutated_capture)


def outputs_leave_before_they_are_durable() -> AbstractContextManager[object]:
    """Outputs leave as soon as their production is on its way to the disk."""
    return _when_written(lambda self: self.outputs.commit(self.number))


def inputs_are_acknowledged_before_they_are_durable() -> AbstractContextManager[object]:
    """A tracker may hear of a production that is on its way to the disk."""
    return _when_written(lambda self: self.again.append(self.written.pop()))


def nothing_is_sent_again() -> AbstractContextManager[object]:
    """What was durable, and had not left, does not leave after the recovery either."""
    return patch.object(Ledger, "frames", property(lambda self: []))


@contextmanager
def frontiers_move_before_all_is_known_that_is_sent_again() -> Iterator[None]:
    """The master may hear that inputs were had before it hears of what is sent because of them."""
    stored = ProductionAssembly.stored

    def mutated(self: ProductionAssembly, answer: Prepared | PrepareFailed) -> Post:
        return stored(self, answer)[::-1]

    with (
        patch.object(driftline.deploy.parties.master, "token", lambda node, start: (0, start, 0)),
        patch.object(driftline.deploy.work.assembly, "token", lambda node, start: (0, start, 0)),
        patch.object(ProductionAssembly, "stored", mutated),
    ):
        yield


def frames_are_tracked_under_an_earlier_time() -> AbstractContextManager[object]:
    """What is made of new records is tracked under the time of one that was had before."""
    take = Leaving.take

    def mutated(self: Leaving, feeder: int) -> Iterator[tuple[int, int, int, list[Batch]]]:
        for port, node, time, batches in take(self, feeder):
            yield port, node, max(0, time - 1), batches

    return patch.object(Leaving, "take", mutated)


def records_leave_that_may_be_forgotten() -> AbstractContextManager[object]:
    """A live front does not wait for its log."""
    return patch.object(Front, "_once_durable", lambda self, records, live: records)


# Bugs that the simulation has found ------------------------------------------------------------


def pre_commits_lose_their_epoch() -> AbstractContextManager[object]:
    """What was pre-committed twice, because a commit came late, counts as of the later epoch."""
    restore = EpochBarrier.restore

    def mutated(self: EpochBarrier, epoch: int, pre_committed: object) -> None:
        if isinstance(pre_committed, tuple) and pre_committed:
            blobs = tuple(blob for _, of_epoch in pre_committed for blob in of_epoch)
            pre_committed = ((epoch, blobs),)
        restore(self, epoch, pre_committed)

    return patch.object(EpochBarrier, "restore", mutated)


def blocks_are_settled_out_of_order() -> AbstractContextManager[object]:
    """The row of an element that came late gets behind those that were applied after it."""
    settle = Speculative.settle

    def mutated(self: Speculative, frontier: int, exactly: bool = False) -> None:
        self.batches.sort(key=lambda block: block.last)
        settle(self, frontier, exactly)

    return patch.object(Speculative, "settle", mutated)


@contextmanager
def promises_pass_unread_records() -> Iterator[None]:
    """An idle front that is asked moves its clock, and nobody looks at what waits to be read."""
    handle = Front.handle

    def mutated(self: Front, sender: str, message: Message) -> None:
        handle(self, sender, message)
        if isinstance(message, AskPromise) and self.live is not None and not self._ended:
            self.next = max(self.next, self.live.move_to(message.next))

    def move_to(self: ReceivedSource, time: int) -> int:
        self._next = max(self._next, time)
        self._promise()
        return int(self._next)

    with (
        patch.object(Front, "handle", mutated),
        patch.object(ReceivedSource, "move_to", move_to),
    ):
        yield


# The sinks and the input log ------------------------------------------------------------------


@contextmanager
def lines_are_committed_before_they_are_durable() -> Iterator[None]:
    """Only the record of what is committed is synced, not the lines."""
    append = JsonLinesConsumer._append

    def mutated(self: JsonLinesConsumer, sink: int, length: int, text: bytes) -> None:
        with patch.object(os, "fdatasync", lambda file: None):
            append(self, sink, length, text)

    with patch.object(JsonLinesConsumer, "_append", mutated):
        yield


def records_are_acknowledged_before_they_are_stored() -> AbstractContextManager[object]:
    """A producer forgets what its front may forget, too."""
    return patch.object(ReceivedSource, "acknowledged", ReceivedSource.accepted)


def records_that_come_again_are_taken() -> AbstractContextManager[object]:
    """A front does not know a record by its number."""
    receive = ReceivedSource.receive

    def mutated(self: ReceivedSource, producer: str, sequence: int, payload: object) -> Receipt:
        self._accepted[producer] = min(self._accepted.get(producer, 0), sequence - 1)
        return receive(self, producer, sequence, payload)

    return patch.object(ReceivedSource, "receive", mutated)


def a_group_whose_writing_failed_is_written_again() -> AbstractContextManager[object]:
    """An intake takes a write that failed for one that was not done."""
    done = Intake.done

    def mutated(self: Intake, job: Job, result: object) -> None:
        if isinstance(result, Unavailable):
            self.jobs.append(job)
            return
        done(self, job, result)

    return patch.object(Intake, "done", mutated)


def a_production_that_failed_is_numbered_again() -> AbstractContextManager[object]:
    """The next production gets the number of one that may be there."""
    stored = ProductionAssembly.stored

    def mutated(self: ProductionAssembly, answer: Prepared | PrepareFailed) -> Post:
        if isinstance(answer, PrepareFailed):
            self.number -= 1
        return stored(self, answer)

    return patch.object(ProductionAssembly, "stored", mutated)


def a_consumer_counts_a_bundle_whose_storing_failed() -> AbstractContextManager[object]:
    """What is not known to be durable is answered as stored."""
    store = ConsumerServer._store

    def mutated(self: ConsumerServer, sender: str, bundle: Bundle) -> None:
        try:
            store(self, sender, bundle)
        except Unavailable:
            self.send(sender, BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last))

    return patch.object(ConsumerServer, "_store", mutated)


# Liveness ---------------------------------------------------------------------------------------


def silence_is_not_noticed() -> AbstractContextManager[object]:
    """Nobody looks for work that does not end."""
    return patch.object(Master, "_watch", lambda self, now, tracker: None)
