"""The submissions and the agents that a cluster's tree holds, and how a submission is changed."""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.cluster.flows.records import AgentRecord, Submission
from driftline.deploy.cluster.tree.tree import AGENTS, FLOWS, SUBMISSION, Conflict, Tree
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.events import about, log
from driftline.engine.ui.near import did_you_mean

TRIES = 5


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
                found.append(Submission.decode(entry.data))
        except StateMismatch as error:
            if damaged is not None:
                damaged[name] = f"{error}. `driftline remove {name}` takes the flow away"
    return found


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
    """The submission of a flow. Raises Unavailable if there is none."""
    entry = tree.read(path_of(flow))
    if entry is None:
        names = [each.name for each in submissions(tree)]
        known = ", ".join(names) or "no flow at all"
        near = did_you_mean(flow, names)
        raise Unavailable(f"{tree.where} has no flow {flow!r}{near}; it has {known}")
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
