"""Strong productions without a safeguard: frames leave too early, or are processed twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import driftline.deploy.node.unordered
import driftline.deploy.roles.master
from driftline.deploy.node.input_queue import ElementBatch
from driftline.deploy.node.stages import Stages
from driftline.deploy.node.unordered import ProductionPipeline
from driftline.deploy.roles.front import Front
from driftline.engine.snapshots.jobs import Capture
from driftline.engine.snapshots.ledger import Ledger
from driftline.engine.wire.messages import Frame, Outgoing, Prepared, PrepareFailed


def repeated_frames_are_processed() -> AbstractContextManager[object]:
    """Process frames that a node sends again."""
    return patch.object(Ledger, "was_processed", lambda self, time, id: False)


def repeated_records_are_processed() -> AbstractContextManager[object]:
    """Process records that a front replays."""
    return patch.object(Ledger, "processed_below", lambda self, front: 0)


def frames_leave_before_they_are_durable() -> AbstractContextManager[object]:
    """Send frames as soon as they are made."""

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
    """Release outputs while their production is still being written."""
    return _when_written(lambda self: self.outputs.commit(self.number))


def inputs_are_acknowledged_before_they_are_durable() -> AbstractContextManager[object]:
    """Report a production to trackers while it is still being written."""
    return _when_written(lambda self: self.resent.append(self.unstored_messages.pop()))


def unsent_frames_are_not_resent() -> AbstractContextManager[object]:
    """Do not resend durable frames that had not left before a crash."""
    return patch.object(Ledger, "frames", property(lambda self: []))


@contextmanager
def frontiers_move_before_resent_frames_are_known() -> Iterator[None]:
    """Report processed inputs to the master before the frames made of them."""
    stored = ProductionPipeline.stored

    def mutated(self: ProductionPipeline, answer: Prepared | PrepareFailed) -> Outgoing:
        return stored(self, answer)[::-1]

    with (
        patch.object(driftline.deploy.roles.master, "blocking_cell", lambda _, t: (0, t, 0)),
        patch.object(driftline.deploy.node.unordered, "blocking_cell", lambda _, t: (0, t, 0)),
        patch.object(ProductionPipeline, "stored", mutated),
    ):
        yield


def frames_are_tracked_under_an_earlier_time() -> AbstractContextManager[object]:
    """Track frames of new records under the time of an earlier record."""
    take = Stages._take

    def mutated(self: Stages, upstream: int) -> Iterator[tuple[int, int, int, list[ElementBatch]]]:
        for port, node, time, batches in take(self, upstream):
            yield port, node, max(0, time - 1), batches

    return patch.object(Stages, "_take", mutated)


def records_leave_before_they_are_durable() -> AbstractContextManager[object]:
    """Do not wait for the input log of a live front."""
    return patch.object(Front, "_when_durable", lambda self, records, live: records)


def number_of_a_failed_production_is_reused() -> AbstractContextManager[object]:
    """Give the next production the number of one that may be stored."""
    stored = ProductionPipeline.stored

    def mutated(self: ProductionPipeline, answer: Prepared | PrepareFailed) -> Outgoing:
        if isinstance(answer, PrepareFailed):
            self.number -= 1
        return stored(self, answer)

    return patch.object(ProductionPipeline, "stored", mutated)
