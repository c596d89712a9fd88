"""The way to another layout without a safeguard."""

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


def the_cut_may_be_earlier_than_what_has_left() -> AbstractContextManager[object]:
    """A replay may not have come as far as the outputs that consumers have."""
    return patch.object(ReportedProgress, "last_sent", -1)


def fronts_go_on_meanwhile() -> AbstractContextManager[object]:
    """Fronts say how far they are, and send more."""
    hold = Front._pause

    def mutated(self: Front, message: Pause) -> None:
        hold(self, message)
        self._pause_time = 1 << 62

    return patch.object(Front, "_pause", mutated)


def not_all_has_to_be_copied() -> AbstractContextManager[object]:
    """The layout changes before its nodes have the last snapshot."""
    return patch.object(Rescaling, "_have_newest_snapshot", lambda self, state: True)


def a_snapshot_from_before_the_cut_will_do() -> AbstractContextManager[object]:
    """Outputs between the snapshot and the cut are made again, by barriers that know nothing."""

    def mutated(self: Rescaling, now: float) -> None:
        self._cut, self.phase = self._newest.time, RescalePhase.MOVING

    return patch.object(Rescaling, "_begin_last_snapshot", mutated)


def the_next_layout_is_in_the_same_incarnation() -> AbstractContextManager[object]:
    """Nothing tells messages of the layout before from those of the next one."""
    write = Coordinator._write

    def mutated(self: Coordinator, state: ClusterState) -> None:
        if state.layout != self.state.layout:
            state = replace(state, incarnation=state.incarnation - 1)
        write(self, state)

    return patch.object(Coordinator, "_write", mutated)
