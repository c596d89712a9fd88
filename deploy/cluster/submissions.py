"""The submissions and the agents that a cluster's tree holds, and how a submission is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from driftline.coordinator.registry import ClusterState, RunOutcome
from driftline.deploy.cluster.records import AgentRecord, Submission
from driftline.deploy.cluster.tree.tree import (
    AGENTS,
    FLOWS,
    SUBMISSION,
    Conflict,
    Entry,
    Tree,
    is_name,
)
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.events import about, log
from driftline.engine.ui.near import did_you_mean

TRIES = 5

_RECORDS = {SUBMISSION, "registry", "wheels"}
"""What `driftline submit` writes of a flow; a queue of masters alone is nothing."""


class Replaced(StateMismatch):
    """The run that was meant is over, and another one has begun."""

    def __init__(self, flow: str) -> None:
        super().__init__(
            f"flow {flow!r} was submitted again, or removed, meanwhile: the run that was meant is "
            f"over, and nothing is asked of a later one. See `driftline status {flow}`"
        )


def path_of(flow: str) -> str:
    """Where the submission of a flow is."""
    return f"{FLOWS}/{flow}/{SUBMISSION}"


def submissions(tree: Tree, damaged: dict[str, str] | None = None) -> list[Submission]:
    """All flows of a cluster, without those whose record cannot be read.

    `damaged`: gets these: flow -> why. Raises Unavailable.
    """
    found = []
    for name in tree.children(FLOWS):
        try:
            entry = tree.read(path_of(name))
            if entry is not None:
                found.append(_decoded(name, entry))
        except StateMismatch as error:
            if damaged is not None:
                damaged[name] = str(error)
    return found


def in_part(tree: Tree) -> dict[str, str]:
    """The flows of which the tree has something, but no submission: flow -> what helps.

    A `driftline submit` is cut short, or is at work just now. Raises Unavailable.
    """
    return {
        name: f"it was submitted in part only: give `driftline submit` again, or `driftline "
        f"remove {name}`, which takes the rest away"
        for name in tree.children(FLOWS)
        if tree.read(path_of(name)) is None and has_records(tree, name)
    }


def has_records(tree: Tree, flow: str) -> bool:
    """Whether the tree has anything of a flow. Raises Unavailable."""
    return flow in tree.children(FLOWS) and not _RECORDS.isdisjoint(
        tree.children(f"{FLOWS}/{flow}")
    )


def _decoded(flow: str, entry: Entry) -> Submission:
    try:
        return Submission.decode(entry.data)
    except StateMismatch as error:
        raise StateMismatch(f"{error}. `driftline remove {flow}` takes the flow away") from None


def agents(tree: Tree) -> list[AgentRecord]:
    """All agents that live, without those whose record cannot be read. Raises Unavailable."""
    found = []
    for name in tree.children(AGENTS):
        try:
            entry = tree.read(f"{AGENTS}/{name}")
            if entry is not None:
                found.append(AgentRecord.decode(entry.data))
        except StateMismatch as error:
            log.warning("agent %s: %s", name, error, extra=about("agent-unreadable", name=name))
    return found


def submission_of(tree: Tree, flow: str) -> Submission:
    """The submission of a flow. Raises Unavailable if there is none, StateMismatch."""
    found = find(tree, flow)
    if found is None:
        if (left := in_part(tree).get(flow)) is not None:
            raise StateMismatch(f"flow {flow!r}: {left}")
        names = [each.name for each in submissions(tree)]
        known = ", ".join(names) or "no flow at all"
        near = did_you_mean(flow, names)
        raise Unavailable(f"{tree.where} has no flow {flow!r}{near}; it has {known}")
    return found[0]


def find(tree: Tree, flow: str) -> tuple[Submission, int] | None:
    """The submission of a flow and its version; None if there is none. Raises Unavailable,
    StateMismatch if it is damaged."""
    entry = tree.read(path_of(flow)) if is_name(flow) else None
    try:
        return None if entry is None else (_decoded(flow, entry), entry.version)
    except StateMismatch as error:
        raise StateMismatch(f"flow {flow!r}: {error}") from None


def is_current(tree: Tree, submission: Submission) -> bool:
    """Whether no other run has begun since this one. Raises Unavailable, StateMismatch."""
    found = find(tree, submission.name)
    return found is not None and found[0].run == submission.run


def change(
    tree: Tree, flow: str, how: Callable[[Submission], Submission], run: str = ""
) -> Submission:
    """Change the submission of a flow; `run`: only that of this run. Raises Unavailable, Conflict,
    Replaced if another run has begun."""
    for left in reversed(range(TRIES)):
        found = find(tree, flow)
        if found is None and not run:
            return submission_of(tree, flow)  # raises
        if found is None or run not in ("", found[0].run):
            raise Replaced(flow)
        changed = how(found[0])
        try:
            tree.write(path_of(flow), changed.encode(), found[1])
        except Conflict:
            if not left:
                raise
        else:
            return changed
    raise AssertionError("the last try returns or raises")


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


def remove(tree: Tree, name: str) -> Submission | None:
    """Remove a flow. Returns its submission, or None if that cannot be read.

    Raises Unavailable if there is nothing of it, StateMismatch if it runs, Conflict.
    """
    if not has_records(tree, name):
        return submission_of(tree, name)  # raises
    submission: Submission | None = None

    def check() -> None:
        nonlocal submission
        submission, state = None, None
        with suppress(StateMismatch):  # it is damaged: there is no other way to end the flow
            found = find(tree, name)
            submission = None if found is None else found[0]
            state = tree.registry(name).read()
        if submission is not None and state is not None and not ended_by(state, submission):
            raise StateMismatch(f"flow {name!r} runs: `driftline stop {name}` ends it first")

    for left in reversed(range(TRIES)):
        try:
            tree.remove(f"{FLOWS}/{name}", check)
        except Conflict:
            if not left:
                raise
        else:
            break
    return submission
