"""Removing: forgets a flow that is over, or what was left of one. Its files stay on the hosts.

Everything of a flow leaves the tree in one step, and only as it was when the flow was found to be
over: so of two commands at once, one that submits and one that removes, one is refused.
"""

from __future__ import annotations

from contextlib import suppress

from driftline.deploy.cluster.flows.outcomes import ended_by
from driftline.deploy.cluster.flows.records import Submission
from driftline.deploy.cluster.flows.submissions import TRIES, find, has_records, submission_of
from driftline.deploy.cluster.tree.tree import FLOWS, Conflict, Tree
from driftline.engine.errors import StateMismatch


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
