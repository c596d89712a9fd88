"""How a flow ends, as its registry says; and how a command ends one without its master.

An outcome that is written here replaces the version of the registry that was read, with the next
epoch. So the master's next write is refused: it ends, and a later one finds the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator

from driftline.coordinator.registry import ClusterState, RunOutcome
from driftline.deploy.cluster.flows.records import Submission
from driftline.deploy.cluster.flows.submissions import is_current, submissions
from driftline.deploy.cluster.tree.tree import Tree
from driftline.engine.errors import StateMismatch

TRIES = 20
"""A master may write at the same moment, once for each snapshot."""

CANCELLED = "Cancelled"
"""The kind of error of a flow that was cancelled."""


def without_registry(tree: Tree, flow: str) -> str:
    """What to tell of a flow whose registry somebody has removed."""
    return (
        f"{tree.where} has lost what flow {flow!r} has decided, its registry: `driftline remove "
        f"{flow}` takes the flow away, and says what to remove then"
    )


def registry_of(tree: Tree, flow: str) -> ClusterState | None:
    """What the registry of a flow holds. Raises Unavailable, and StateMismatch with what helps."""
    try:
        return tree.registry(flow).read()
    except StateMismatch as error:
        raise StateMismatch(f"{error}. `driftline remove {flow}` takes the flow away") from None


def ended_by(state: ClusterState, submission: Submission) -> bool:
    """Whether the run of a submission is over, as its registry says."""
    return state.outcome is not None and state.outcome.run == submission.run


def going_on(tree: Tree, but: str = "") -> Iterator[tuple[Submission, ClusterState | None]]:
    """The flows that go on, `but` one, and what their registries hold; None if that is damaged:
    what runs of such a flow may go on. Raises Unavailable."""
    for each in submissions(tree):
        if each.name == but:
            continue
        try:
            state = tree.registry(each.name).read()
        except StateMismatch:
            state = None
        if state is None or not ended_by(state, each):
            yield each, state


def fail(tree: Tree, submission: Submission, error: str, text: str) -> bool:
    """End the run of a submission with an error, unless it is over.

    Returns whether it was not. The version that is replaced was read while no other run had begun;
    so no other run is ended. Raises Unavailable, StateMismatch.
    """
    registry = tree.registry(submission.name)
    for left in reversed(range(TRIES)):
        state = registry_of(tree, submission.name)
        if not is_current(tree, submission):
            return False
        if state is None:
            raise StateMismatch(without_registry(tree, submission.name))
        if ended_by(state, submission):
            return False
        outcome = RunOutcome(submission.run, error, text)
        try:
            registry.write(state.next(outcome=outcome, epoch=state.epoch + 1, leader=text[:64]))
        except StateMismatch:
            if not left:
                raise
        else:
            return True
    raise AssertionError("the last try returns or raises")
