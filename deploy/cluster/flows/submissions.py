"""The submissions and the agents that a cluster's tree holds, and how a submission is changed."""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.cluster.flows.records import AgentRecord, Submission
from driftline.deploy.cluster.tree.tree import AGENTS, FLOWS, SUBMISSION, Conflict, Tree
from driftline.engine.errors import Unavailable

TRIES = 5


def path_of(flow: str) -> str:
    """Where the submission of a flow is."""
    return f"{FLOWS}/{flow}/{SUBMISSION}"


def submissions(tree: Tree) -> list[Submission]:
    """All flows of a cluster. Raises Unavailable, StateMismatch."""
    found = (tree.read(path_of(name)) for name in tree.children(FLOWS))
    return [Submission.decode(entry.data) for entry in found if entry is not None]


def agents(tree: Tree) -> list[AgentRecord]:
    """All agents that live. Raises Unavailable, StateMismatch."""
    found = (tree.read(f"{AGENTS}/{name}") for name in tree.children(AGENTS))
    return [AgentRecord.decode(entry.data) for entry in found if entry is not None]


def submission_of(tree: Tree, flow: str) -> Submission:
    """The submission of a flow. Raises Unavailable if there is none."""
    entry = tree.read(path_of(flow))
    if entry is None:
        known = ", ".join(each.name for each in submissions(tree)) or "no flow at all"
        raise Unavailable(f"{tree.where} has no flow {flow!r}; it has {known}")
    return Submission.decode(entry.data)


def change(tree: Tree, flow: str, how: Callable[[Submission], Submission]) -> Submission:
    """Change the submission of a flow. Raises Unavailable, Conflict."""
    for left in reversed(range(TRIES)):
        entry = tree.read(path_of(flow))
        if entry is None:
            return submission_of(tree, flow)  # raises
        changed = how(Submission.decode(entry.data))
        try:
            tree.write(path_of(flow), changed.encode(), entry.version)
        except Conflict:
            if not left:
                raise
        else:
            return changed
    raise AssertionError("the last try returns or raises")
