"""The coordinator without a safeguard: commits, and the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec import structs
from msgspec.structs import replace

from driftline.coordinator.coordinator import Coordinator, Phase
from driftline.coordinator.draining import ShutdownWait
from driftline.coordinator.registry import ClusterState
from driftline.coordinator.snapshots import Snapshots
from driftline.deploy.roles.member import Member
from driftline.engine.policy import Policy
from driftline.engine.wire.messages import Committed, Message, Prepared, Stop

# Commits --------------------------------------------------------------------------------------


def first_prepared_commits() -> AbstractContextManager[object]:
    """A snapshot does not wait for all nodes."""
    prepared = Snapshots.prepared

    def mutated(self: Snapshots, sender: str, message: Prepared) -> None:
        prepared(self, sender, message)
        if self.pending is not None:
            self.pending.waiting.clear()

    return patch.object(Snapshots, "prepared", mutated)


def commit_is_told_before_it_is_written() -> AbstractContextManager[object]:
    """Nodes learn of a commit that the registry may never hold."""
    write = Coordinator._write

    def mutated(self: Coordinator, state: ClusterState) -> None:
        write(self, state)
        if self.phase is Phase.RUNNING:
            self._tell(self.nodes, Committed(self.snapshots.number, 0, 0, 0))

    return patch.object(Coordinator, "_write", mutated)


# The end of a run -----------------------------------------------------------------------------


def the_end_is_told_before_it_is_written() -> AbstractContextManager[object]:
    """Members end because of a decision that the next master may not find."""
    stop = Coordinator.stop

    def mutated(self: Coordinator, error: str = "", text: str = "") -> None:
        stop(self, error, text)
        self._tell_outcome(self.nodes + self.fronts)

    return patch.object(Coordinator, "stop", mutated)


def the_end_is_told_once() -> AbstractContextManager[object]:
    """Who was not there when it was told, or was and died of it, never hears of it."""
    return patch.object(ShutdownWait, "is_over", lambda self, now: True)


def any_run_may_be_over() -> AbstractContextManager[object]:
    """A member takes the end of another run for its own."""
    handle = Member.handle

    def mutated(self: Member, sender: str, message: Message) -> None:
        if isinstance(message, Stop):
            message = structs.replace(message, run=self.run)
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
        *others: Any,
    ) -> None:
        if state.outcome is not None:
            state = replace(state, outcome=replace(state.outcome, run=run))
        begin(self, nodes, fronts, policy, state, interval, run, *others)

    with patch.object(Coordinator, "__init__", mutated):
        yield
