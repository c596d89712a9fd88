"""Masters without a safeguard: deposed ones still write or send; leaders never step down."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from driftline.coordinator.coordinator import Coordinator
from driftline.coordinator.leadership import StepDown, Takeover
from driftline.coordinator.registry import ClusterState, encode_state
from driftline.coordinator.snapshots import Snapshots
from driftline.deploy.roles.member import Member
from driftline.engine.wire.kinds import MASTER
from driftline.engine.wire.messages import FollowsMaster, Hello, MessageHeader
from driftline.engine.wire.role import IOJob, Role
from driftline.simulation.world.disks import MasterDisk


def any_master_may_write() -> AbstractContextManager[object]:
    """Write to the registry without the version of the last read."""

    def mutated(self: MasterDisk, job: IOJob) -> None:
        state = job.state  # type: ignore[attr-defined]
        assert isinstance(state, ClusterState)
        self.data = encode_state(state)

    return patch.object(MasterDisk, "execute_job", mutated)


def messages_of_any_master_are_accepted() -> AbstractContextManager[object]:
    """Accept messages of earlier masters of the same incarnation."""
    is_next = Role._accept_in_sequence

    def mutated(self: Role, header: MessageHeader) -> bool:
        if header.sender == MASTER and isinstance(self, Member):
            return header.incarnation == self.incarnation
        return is_next(self, header)

    return patch.object(Role, "_accept_in_sequence", mutated)


def takeover_ignores_incarnations_of_members() -> AbstractContextManager[object]:
    """Continue an incarnation although some members are not in it."""
    return patch.object(Takeover, "is_possible", True)


def takeover_does_not_wait_for_followers() -> AbstractContextManager[object]:
    """Continue before all members follow the new master."""
    following = Coordinator.on_follows_master

    def hello(self: Takeover, name: str, message: Hello) -> None:
        self._can_continue[name] = True

    def mutated(self: Coordinator, name: str, message: FollowsMaster) -> None:
        if self._takeover is not None:
            for member in self.nodes + self.fronts:
                self._takeover.answer(member, message)
        following(self, name, message)

    return patch.object(Coordinator, "on_follows_master", mutated)


def pending_snapshot_is_not_given_up() -> AbstractContextManager[object]:
    """Do not give up the snapshot that the previous master began."""
    return patch.object(Snapshots, "give_up", lambda self, number, waiting: None)


def leader_never_steps_down() -> AbstractContextManager[object]:
    """Let a leader that cannot reach a member wait forever, even if a standby exists."""
    return patch.object(StepDown, "due", lambda self, now, missed: [])


def members_are_not_probed() -> AbstractContextManager[object]:
    """Let a leader assume that a member receives its messages because the member sends some."""
    return patch.object(StepDown, "is_probe_due", lambda self, now: False)
