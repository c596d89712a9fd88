"""The submissions and the agents that a cluster's tree holds, and how a submission is changed."""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.cluster.flows.records import AgentRecord, Submission
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
