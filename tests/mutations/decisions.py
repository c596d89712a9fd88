"""Coordinator without a safeguard: commits, and the end of a run."""

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
    """Commit a snapshot before all nodes have stored their parts."""
    prepared = Snapshots.prepared

    def mutated(self: Snapshots, sender: str, message: Prepared) -> None:
        prepared(self, sender, message)
        if self.pending is not None:
            self.pending.waiting.clear()

    return patch.object(Snapshots, "prepared", mutated)


def commit_is_sent_before_it_is_written() -> AbstractContextManager[object]:
    """Send commits to nodes before the registry has them; it may never have them."""
    write = Coordinator._write

    def mutated(self: Coordinator, state: ClusterState) -> None:
        write(self, state)
        if self.phase is Phase.RUNNING:
            self._send(self.nodes, Committed(self.snapshots.number, 0, 0, 0))

    return patch.object(Coordinator, "_write", mutated)


# The end of a run -----------------------------------------------------------------------------


def outcome_is_sent_before_it_is_written() -> AbstractContextManager[object]:
    """Let members end before the outcome is written; the next master may not find it."""
    stop = Coordinator.stop

    def mutated(self: Coordinator, error: str = "", text: str = "") -> None:
        stop(self, error, text)
        self._send_outcome(self.nodes + self.fronts)

    return patch.object(Coordinator, "stop", mutated)


def outcome_is_sent_only_once() -> AbstractContextManager[object]:
    """Send the outcome once: a member that is down or dies then never receives it."""
    return patch.object(ShutdownWait, "is_over", lambda self, now: True)


def stop_of_another_run_is_obeyed() -> AbstractContextManager[object]:
    """Let a member obey the stop of another run."""
    handle = Member.handle

    def mutated(self: Member, sender: str, message: Message) -> None:
        if isinstance(message, Stop):
            message = structs.replace(message, run=self.run)
        handle(self, sender, message)

    return patch.object(Member, "handle", mutated)


@contextmanager
def outcome_of_an_earlier_run_counts() -> Iterator[None]:
    """Let the outcome of an earlier call count, so that the repeated command does nothing."""
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
