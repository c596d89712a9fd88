"""Masters without a fence: what one that has been followed by another still writes, or sends; and
masters that keep the lead although they do not reach all members."""

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
from driftline.engine.wire.role import DurableJob, Role
from driftline.simulation.world.disks import MasterDisk


def any_master_may_write() -> AbstractContextManager[object]:
    """A write does not name the version before it."""

    def mutated(self: MasterDisk, job: DurableJob) -> None:
        state = job.state  # type: ignore[attr-defined]
        assert isinstance(state, ClusterState)
        self.data = encode_state(state)

    return patch.object(MasterDisk, "execute_job", mutated)


def messages_of_any_master_are_taken() -> AbstractContextManager[object]:
    """Members take what earlier masters of the same incarnation send."""
    is_next = Role._accept_in_sequence

    def mutated(self: Role, header: MessageHeader) -> bool:
        if header.sender == MASTER and isinstance(self, Member):
            return header.incarnation == self.incarnation
        return is_next(self, header)

    return patch.object(Role, "_accept_in_sequence", mutated)


def a_takeover_does_not_look_where_members_are() -> AbstractContextManager[object]:
    """A new master goes on with an incarnation although not all members are in it."""
    return patch.object(Takeover, "is_possible", True)


def a_takeover_does_not_ask() -> AbstractContextManager[object]:
    """A new master goes on before all members follow it."""
    following = Coordinator.on_follows_master

    def hello(self: Takeover, name: str, message: Hello) -> None:
        self._can_continue[name] = True

    def mutated(self: Coordinator, name: str, message: FollowsMaster) -> None:
        if self._takeover is not None:
            for member in self.nodes + self.fronts:
                self._takeover.answer(member, message)
        following(self, name, message)

    return patch.object(Coordinator, "on_follows_master", mutated)


def what_was_in_flight_counts() -> AbstractContextManager[object]:
    """A new master takes a snapshot that the one before has begun for one that nobody has begun."""
    return patch.object(Snapshots, "give_up", lambda self, number, waiting: None)


def nobody_makes_way() -> AbstractContextManager[object]:
    """A leader that does not reach a member waits for ever, whoever stands by."""
    return patch.object(StepDown, "due", lambda self, now, missed: [])


def nobody_is_asked_who_hears() -> AbstractContextManager[object]:
    """A leader takes it that each member that it hears does hear it."""
    return patch.object(StepDown, "is_probe_due", lambda self, now: False)
