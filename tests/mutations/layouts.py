"""Rescaling without a safeguard."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from msgspec.structs import replace

from driftline.acker.tracker import ReportedProgress
from driftline.coordinator.coordinator import Coordinator
from driftline.coordinator.registry import ClusterState
from driftline.coordinator.rescaling import RescalePhase, Rescaling
from driftline.deploy.roles.front import Front
from driftline.engine.wire.messages import Pause


def cut_may_precede_sent_outputs() -> AbstractContextManager[object]:
    """Let the cut precede outputs that consumers have already received."""
    return patch.object(ReportedProgress, "last_sent", -1)


def paused_fronts_keep_sending() -> AbstractContextManager[object]:
    """Let fronts report a pause and continue to send."""
    hold = Front._pause

    def mutated(self: Front, message: Pause) -> None:
        hold(self, message)
        self._pause_time = 1 << 62

    return patch.object(Front, "_pause", mutated)


def layout_changes_before_the_copy_is_complete() -> AbstractContextManager[object]:
    """Change the layout before its nodes have the newest snapshot."""
    return patch.object(Rescaling, "_have_newest_snapshot", lambda self, state: True)


def snapshot_before_the_cut_is_used() -> AbstractContextManager[object]:
    """Use a snapshot before the cut: new barriers emit the outputs in between again."""

    def mutated(self: Rescaling, now: float) -> None:
        self._cut, self.phase = self._newest.time, RescalePhase.MOVING

    return patch.object(Rescaling, "_begin_last_snapshot", mutated)


def next_layout_keeps_the_incarnation() -> AbstractContextManager[object]:
    """Keep the incarnation: messages of the old and the new layout are indistinguishable."""
    write = Coordinator._write

    def mutated(self: Coordinator, state: ClusterState) -> None:
        if state.layout != self.state.layout:
            state = replace(state, incarnation=state.incarnation - 1)
        write(self, state)

    return patch.object(Coordinator, "_write", mutated)
