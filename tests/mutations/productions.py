"""Strong productions without a safeguard: frames leave too early, or are worked off twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import driftline.deploy.node.comparison
import driftline.deploy.roles.master
from driftline.deploy.node.comparison import ProductionPipeline
from driftline.deploy.node.input_queue import ElementBatch
from driftline.deploy.node.stages import Stages
from driftline.deploy.roles.front import Front
from driftline.engine.snapshots.jobs import Capture
from driftline.engine.snapshots.ledger import Ledger
from driftline.engine.wire.messages import Frame, Outgoing, Prepared, PrepareFailed


def frames_that_were_had_are_worked_off() -> AbstractContextManager[object]:
    """A frame that a node sends again is not recognised by its id."""
    return patch.object(Ledger, "was_processed", lambda self, time, id: False)


def records_that_were_had_are_worked_off() -> AbstractContextManager[object]:
    """A record that a front replays is not recognised by its time."""
    return patch.object(Ledger, "next_of", lambda self, front: 0)


def frames_leave_before_they_are_durable() -> AbstractContextManager[object]:
    """A frame is sent as soon as it is made."""

    def mutated(self: ProductionPipeline, to: str, frame: Frame) -> bool:
        self.ledger.keep_frame(to, frame)
        return False

    return patch.object(ProductionPipeline, "defer_frame", mutated)


def _when_written(mutated: Callable[[ProductionPipeline], None]) -> AbstractContextManager[object]:
    capture = ProductionPipeline.capture

    def mutated_capture(self: ProductionPipeline, time: int) -> Capture:
        captured = capture(self, time)
        mutated(self)
        return captured

    return patch.object(ProductionPipeline, "capture", mutated_capture)


def outputs_leave_before_they_are_durable() -> AbstractContextManager[object]:
    """Outputs leave as soon as their production is on its way to the disk."""
    return _when_written(lambda self: self.outputs.commit(self.number))


def inputs_are_acknowledged_before_they_are_durable() -> AbstractContextManager[object]:
    """A tracker may hear of a production that is on its way to the disk."""
    return _when_written(lambda self: self.resent.append(self.unstored_messages.pop()))


def nothing_is_sent_again() -> AbstractContextManager[object]:
    """Durable frames that had not left before a crash do not leave after the recovery either."""
    return patch.object(Ledger, "frames", property(lambda self: []))


@contextmanager
def frontiers_move_before_all_is_known_that_is_sent_again() -> Iterator[None]:
    """The master may hear of inputs that were worked off before the frames made of them."""
    stored = ProductionPipeline.stored

    def mutated(self: ProductionPipeline, answer: Prepared | PrepareFailed) -> Outgoing:
        return stored(self, answer)[::-1]

    with (
        patch.object(driftline.deploy.roles.master, "blocking_cell", lambda _, t: (0, t, 0)),
        patch.object(driftline.deploy.node.comparison, "blocking_cell", lambda _, t: (0, t, 0)),
        patch.object(ProductionPipeline, "stored", mutated),
    ):
        yield


def frames_are_tracked_under_an_earlier_time() -> AbstractContextManager[object]:
    """Frames of new records are tracked under the time of a record that was worked off before."""
    take = Stages._take

    def mutated(self: Stages, feeder: int) -> Iterator[tuple[int, int, int, list[ElementBatch]]]:
        for port, node, time, batches in take(self, feeder):
            yield port, node, max(0, time - 1), batches

    return patch.object(Stages, "_take", mutated)


def records_leave_that_may_be_forgotten() -> AbstractContextManager[object]:
    """A live front does not wait for its log."""
    return patch.object(Front, "_when_durable", lambda self, records, live: records)


def a_production_that_failed_is_numbered_again() -> AbstractContextManager[object]:
    """The next production gets the number of one that may be there."""
    stored = ProductionPipeline.stored

    def mutated(self: ProductionPipeline, answer: Prepared | PrepareFailed) -> Outgoing:
        if isinstance(answer, PrepareFailed):
            self.number -= 1
        return stored(self, answer)

    return patch.object(ProductionPipeline, "stored", mutated)
