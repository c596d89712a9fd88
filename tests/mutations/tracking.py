"""Tracking without a safeguard: open work counts as complete, or is never requested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from unittest.mock import patch

from msgspec.structs import replace

from driftline.acker.tracker import Tracker
from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.node.input_queue import InputQueue
from driftline.deploy.node.node import Node
from driftline.deploy.node.stages import Peers, Stages
from driftline.deploy.node.tracking import NOTHING, Acknowledged, Acks, Cells, Tracking
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.master import Master
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import AskPromise, Frame, Message, Outgoing


@contextmanager
def acknowledgement_is_split() -> Iterator[None]:
    """Acknowledge a frame a turn before the frames that were sent because of it."""
    count, turn = Stages._count, Node.turn
    late: dict[Tracking, list[Cells]] = {}

    def count_later(self: Stages, port: int, time: int, id: int) -> None:
        tracking = self._tracking
        acks, tracking.acks = tracking.acks, Acks()
        count(self, port, time, id)
        late.setdefault(tracking, []).append(tracking.acks.take()[0])
        tracking.acks = acks

    def turn_later(self: Node) -> bool:
        before = late.pop(self._tracking, [])
        more = turn(self)
        if not self.running:
            late.pop(self._tracking, None)
            return more
        for cell in chain.from_iterable(before):
            self._tracking.acks.add(*cell)
        return more or self._tracking in late or bool(before)

    with patch.object(Stages, "_count", count_later), patch.object(Node, "turn", turn_later):
        yield


def acknowledgements_overtake_frames() -> AbstractContextManager[object]:
    """Let the acknowledgement of a stage arrive before the frames of the stage."""
    acknowledge = Peers.acknowledge

    def mutated(self: Peers, acknowledged: Acknowledged) -> Outgoing:
        late = acknowledge(self, NOTHING)
        return [*acknowledge(self, acknowledged), *late]

    return patch.object(Peers, "acknowledge", mutated)


def frames_cover_their_whole_turn() -> AbstractContextManager[object]:
    """Let a frame also cover roots that left in the same turn for other nodes."""
    send = Front.send

    def mutated(self: Front, to: str, message: Message) -> None:
        if isinstance(message, Frame):
            message = replace(message, interval=(message.interval[0], self.next))
        send(self, to, message)

    return patch.object(Front, "send", mutated)


def intervals_count_across_gaps() -> AbstractContextManager[object]:
    """Take the end of any interval for the end of the covered prefix."""

    def mutated(self: Tracker, coverer: int, since: int, until: int) -> None:
        self._done_below[coverer] = max(self._done_below[coverer], until)

    return patch.object(Tracker, "_cover", mutated)


def outputs_do_not_wait_for_their_own_stage() -> AbstractContextManager[object]:
    """Release outputs although blocks with earlier times wait at the last stage."""
    return patch.object(InputQueue, "first", lambda self, stage: INFINITY)


def outputs_do_not_wait_for_durable_inputs() -> AbstractContextManager[object]:
    """Release outputs of inputs that may be lost."""
    promise = Tracker.promise

    def mutated(self: Tracker, front: int, since: int, until: int, durable: int) -> None:
        promise(self, front, since, until, INFINITY)

    return patch.object(Tracker, "promise", mutated)


@contextmanager
def promises_pass_unread_records() -> Iterator[None]:
    """Let a lagging front move its clock past records that wait to be read."""
    handle = Front.handle

    def mutated(self: Front, sender: str, message: Message) -> None:
        handle(self, sender, message)
        if isinstance(message, AskPromise) and self.live is not None and not self._ended:
            self.next = max(self.next, self.live.advance_to(message.until))

    def move_to(self: ReceivedSource, time: int) -> int:
        self._next = max(self._next, time)
        self._advance_durable()
        return int(self._next)

    with (
        patch.object(Front, "handle", mutated),
        patch.object(ReceivedSource, "advance_to", move_to),
    ):
        yield


def stalled_work_is_not_detected() -> AbstractContextManager[object]:
    """Do not look for work that never completes."""
    return patch.object(Master, "_recover_lost_work", lambda self, now, tracker: None)
