"""Functions that list agents, and read, change, end and remove submitted flows in a cluster's tree.

The registry of a flow contains its outcome. A command can end a flow without its master: it writes
the outcome and the next epoch to the registry, if this has not changed since the command read it.
The registry then rejects the master's next write. So the master ends, and a later one finds the
outcome.

`remove` deletes a flow that is over from the tree in one transaction, which fails if a record of
the flow has changed since the check that it is over. Therefore, of a concurrent submission and
removal, one is rejected. The flow's files stay on the hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from driftline.coordinator.registry import ClusterState, RunOutcome
from driftline.deploy.cluster.records import AgentRecord, Submission
from driftline.deploy.cluster.zookeeper_tree import (
    AGENTS,
    FLOWS,
    REGISTRY,
    SUBMISSION,
    WriteConflict,
    ZooKeeperNode,
    ZooKeeperTree,
    is_name,
)
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.texts import did_you_mean

ATTEMPTS_MAX = 20
"""Maximum attempts of a write: it conflicts if the master writes the registry at the same moment,
as it does for each snapshot."""

CANCELLED = "Cancelled"
"""`RunOutcome.error` of a cancelled flow."""


_Result = TypeVar("_Result")


class RunReplaced(StateMismatch):
    """Error of a command whose run is over: the flow was submitted again, or removed."""

    def __init__(self, flow: str) -> None:
        super().__init__(
            f"flow {flow!r} was submitted again, or removed, meanwhile: its earlier run is over, "
            f"and the command does not affect a later run. See `driftline status {flow}`"
        )


def path_of(flow: str) -> str:
    """Return the path of a flow's submission."""
    return f"{FLOWS}/{flow}/{SUBMISSION}"


def registry_path(flow: str) -> str:
    """Return the path of a flow's registry."""
    return f"{FLOWS}/{flow}/{REGISTRY}"


def list_agents(tree: ZooKeeperTree) -> list[AgentRecord]:
    """Return all live agents with a readable record. Raises Unavailable."""
    agents = []
    for name in tree.children(AGENTS):
        try:
            entry = tree.read(f"{AGENTS}/{name}")
            if entry is not None:
                agents.append(AgentRecord.decode(entry.data))
        except StateMismatch as error:
            log.warning(
                "agent %s: %s", name, error, extra=event_fields("agent-unreadable", name=name)
            )
    return agents


# Submissions ----------------------------------------------------------------------------------


def list_submissions(
    tree: ZooKeeperTree, damaged: dict[str, str] | None = None
) -> list[Submission]:
    """Return all readable submissions of a cluster.

    `damaged`: a dictionary to which the others are added: flow -> reason. Raises Unavailable.
    """
    submissions = []
    for name in tree.children(FLOWS):
        try:
            entry = tree.read(path_of(name))
            if entry is not None:
                submissions.append(_decoded(name, entry))
        except StateMismatch as error:
            if damaged is not None:
                damaged[name] = str(error)
    return submissions


def submission_of(tree: ZooKeeperTree, flow: str) -> Submission:
    """Return the submission of a flow.

    Raises Unavailable if there is none, StateMismatch if it is damaged.
    """
    found = find_submission(tree, flow)
    if found is None:
        names = [each.name for each in list_submissions(tree)]
        known = ", ".join(names) or "no flow at all"
        hint = did_you_mean(flow, names)
        raise Unavailable(f"{tree.where} has no flow {flow!r}{hint}; it has {known}")
    return found[0]


def find_submission(tree: ZooKeeperTree, flow: str) -> tuple[Submission, int] | None:
    """Return the submission of a flow and its version; None if there is none.

    Raises Unavailable, StateMismatch if it is damaged.
    """
    entry = tree.read(path_of(flow)) if is_name(flow) else None
    try:
        return None if entry is None else (_decoded(flow, entry), entry.version)
    except StateMismatch as error:
        raise StateMismatch(f"flow {flow!r}: {error}") from None


def is_current(tree: ZooKeeperTree, submission: Submission) -> bool:
    """Return whether the run of a submission is the flow's latest.

    Raises Unavailable, StateMismatch.
    """
    found = find_submission(tree, submission.name)
    return found is not None and found[0].run == submission.run


def update_submission(
    tree: ZooKeeperTree, flow: str, update: Callable[[Submission], Submission], run: str = ""
) -> Submission:
    """Replace the submission of a flow by the result of `update`, and return the result.

    `update`: called again after a conflict with another writer. `run`: the run that the submission
    must belong to; "": any run. Raises Unavailable, WriteConflict; StateMismatch if the submission
    is damaged; RunReplaced if it belongs to another run, or `run` is given and the flow was
    removed; and whatever `update` raises.
    """

    def write() -> Submission:
        found = find_submission(tree, flow)
        if found is None and not run:
            return submission_of(tree, flow)  # raises
        if found is None or run not in ("", found[0].run):
            raise RunReplaced(flow)
        submission, version = found
        changed = update(submission)
        tree.write(path_of(flow), changed.encode(), version)
        return changed

    return _retried(write)


def _retried(write: Callable[[], _Result]) -> _Result:
    """Write, and retry after a conflict with another writer. Return what `write` returns.

    Raises WriteConflict after ATTEMPTS_MAX attempts.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        with suppress(WriteConflict):
            return write()
    return write()


def _decoded(flow: str, entry: ZooKeeperNode) -> Submission:
    try:
        return Submission.decode(entry.data)
    except StateMismatch as error:
        raise StateMismatch(f"{error}. {removal_advice(flow)}") from None


def removal_advice(flow: str) -> str:
    """Return an advice for error texts: how to remove a flow whose records cannot be used."""
    return f"`driftline remove {flow}` removes the flow"


# Ends -----------------------------------------------------------------------------------------


def registry_of(tree: ZooKeeperTree, flow: str) -> ClusterState:
    """Return the contents of a submitted flow's registry.

    Raises Unavailable, and StateMismatch if the registry is damaged or missing.
    """
    try:
        state = tree.registry(flow).read()
    except StateMismatch as error:
        raise StateMismatch(f"{error}. {removal_advice(flow)}") from None
    if state is None:
        lost = f"{tree.where} has lost the registry of flow {flow!r}"
        raise StateMismatch(f"{lost}. {removal_advice(flow)}")
    return state


def has_ended(state: ClusterState, submission: Submission) -> bool:
    """Return whether the run of a submission is over, according to its registry."""
    return state.outcome is not None and state.outcome.run == submission.run


def active_flows(
    tree: ZooKeeperTree, excluding: str = ""
) -> Iterator[tuple[Submission, ClusterState | None]]:
    """Yield each flow that is not over, except flow `excluding`, with its registry's contents.

    Includes flows with a damaged registry, as their processes may still run; the contents are None
    then. Raises Unavailable.
    """
    for each in list_submissions(tree):
        if each.name == excluding:
            continue
        state = None
        with suppress(StateMismatch):
            state = registry_of(tree, each.name)
        if state is None or not has_ended(state, each):
            yield each, state


def fail(tree: ZooKeeperTree, submission: Submission, error: str, text: str) -> bool:
    """End the run of a submission with an error, unless it is over. Return whether this call did.

    `error`, `text`: see `RunOutcome`. The registry is read before the check that the run is the
    latest, and the write fails if the registry has changed since. So it cannot end a later run.
    Raises Unavailable, StateMismatch.
    """
    registry = tree.registry(submission.name)

    def write() -> bool:
        try:
            state = registry_of(tree, submission.name)
        except StateMismatch:
            if is_current(tree, submission):
                raise
            return False
        if not is_current(tree, submission) or has_ended(state, submission):
            return False
        outcome = RunOutcome(submission.run, error, text)
        try:
            registry.write(state.next(outcome=outcome, epoch=state.epoch + 1, leader=text[:64]))
        except StateMismatch as conflict:
            raise WriteConflict(str(conflict)) from None
        return True

    return _retried(write)


def remove(tree: ZooKeeperTree, name: str) -> Submission | None:
    """Remove a flow from the tree. Return its submission; None if it is missing or damaged.

    Raises Unavailable if the flow does not exist, StateMismatch if it runs, WriteConflict.
    """
    if name not in tree.children(FLOWS):
        return submission_of(tree, name)  # raises
    submission: Submission | None = None

    def check() -> None:
        nonlocal submission
        submission, is_over = None, True
        with suppress(StateMismatch):  # damaged records do not prevent a removal
            if (found := find_submission(tree, name)) is not None:
                submission = found[0]
                is_over = has_ended(registry_of(tree, name), submission)
        if not is_over:
            raise StateMismatch(f"flow {name!r} runs: `driftline stop {name}` ends it first")

    _retried(lambda: tree.remove(f"{FLOWS}/{name}", check))
    return submission
