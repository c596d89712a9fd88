"""Rescaling: gives a flow places for another number of nodes, and asks its master for it.

The master makes the next layout (`coordinator.resizing`). The numbers of its nodes are given here,
with their places, before it is asked: an agent starts the nodes that the master wants and that have
their place there. Each wish has numbers that no wish before it had. So a place never moves, though
the master may commit the layout of an earlier wish at the same moment; and of two wishes the master
knows which one is later.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.placing import spread, taken_slots
from driftline.deploy.cluster.records import Role, Submission
from driftline.deploy.cluster.submissions import (
    agents,
    change,
    ended_by,
    registry_of,
    submission_of,
)
from driftline.deploy.cluster.tree import Tree
from driftline.engine.errors import FlowError, StateMismatch
from driftline.engine.policy import POLICIES, Policy
from driftline.engine.texts import counted


def rescale(tree: Tree, name: str, nodes: int) -> Submission:
    """Ask for another number of nodes of a flow. Returns its submission with their places.

    Raises FlowError if its policy cannot change it, StateMismatch if the flow is over, or was
    submitted again meanwhile, Unavailable if there are too few slots.
    """
    submission = submission_of(tree, name)
    check_rescalable(name, POLICIES[submission.policy])
    if nodes > submission.groups:
        raise FlowError(f"flow {name!r} has {submission.groups} key groups: so many nodes at most")

    def asked(before: Submission) -> Submission:
        state = registry_of(tree, name)
        if ended_by(state, before):
            raise StateMismatch(f"flow {name!r} is over: submit it again, with --nodes {nodes}")
        now = len(before.layout_in(state))
        if nodes == (before.wanted or now):
            return before
        if before.wanted not in (0, now) and nodes != now:
            raise StateMismatch(
                f"flow {name!r} is on its way to {counted(before.wanted, 'node')}: wait until it "
                f"has them, or let it stay as it is with `driftline rescale {name} {now}`"
            )
        return wishing(tree, before, state, nodes)

    return change(tree, name, asked, submission.run)


def keep_nodes(tree: Tree, submission: Submission) -> Submission:
    """Give up the wish of a submission for other nodes, unless there is a later one.

    Raises Replaced if the flow was submitted again.
    """

    def kept(before: Submission) -> Submission:
        if before.wanted_from != submission.wanted_from:
            return before
        state = registry_of(tree, before.name)
        return wishing(tree, before, state, len(before.layout_in(state)))

    return change(tree, submission.name, kept, submission.run)


def wishing(tree: Tree, submission: Submission, state: ClusterState, nodes: int) -> Submission:
    """A submission with the wish for so many nodes, and their places. Raises Unavailable.

    If these are as many as now, they have places, too: the master may come to other nodes before
    it hears that none are wanted.
    """
    layout = submission.layout_in(state)
    if nodes == len(layout):
        places = [submission.place_of(number) for number in layout]
    else:
        # These nodes end as soon as the next ones run: their slots count as free.
        taken = taken_slots(tree, but=submission.name)
        taken[submission.name] = Counter(submission.fronts)
        places = spread(agents(tree), Role.NODE, nodes, taken)
    after = submission.nodes + tuple(places)
    return replace(submission, nodes=after, wanted=nodes, wanted_from=len(submission.nodes))


def check_rescalable(name: str, policy: Policy) -> None:
    """Raises FlowError if a flow with this policy keeps its number of nodes."""
    if not policy.resizes:
        raise FlowError(
            f"flow {name!r} runs with {policy.name}, and keeps its number of nodes: only "
            "exactly-once can change it, as its state and its outputs are cut at one place in the "
            "order of all records"
        )
