"""Rescaling: gives a flow places for another number of nodes, and asks its master for it.

The master makes the next layout (`coordinator.resizing`); its nodes have the numbers after the
last one. Their places are stored before it is asked: an agent starts the nodes that the master
wants at its places. If the master gives up a try, the next one has the same numbers and places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.flows.outcomes import ended_by
from driftline.deploy.cluster.flows.placing import spread, taken_slots
from driftline.deploy.cluster.flows.records import Kind, Submission, Wish
from driftline.deploy.cluster.flows.submissions import agents, change, submission_of
from driftline.deploy.cluster.tree.tree import Conflict, Tree
from driftline.engine.errors import FlowError, StateMismatch, Unavailable
from driftline.engine.events import about, log
from driftline.engine.policy import POLICIES, Policy


def rescale(tree: Tree, name: str, nodes: int) -> Submission:
    """Ask for another number of nodes of a flow. Returns its submission with their places.

    Raises FlowError if its policy cannot change it, StateMismatch if the flow is over, Unavailable
    if there are too few slots.
    """
    submission = submission_of(tree, name)
    check_rescalable(name, POLICIES[submission.policy])
    if nodes > submission.groups:
        raise FlowError(f"flow {name!r} has {submission.groups} key groups: so many nodes at most")
    state = tree.registry(name).read()
    if state is None or ended_by(state, submission):
        raise StateMismatch(f"flow {name!r} is over: submit it again, with --nodes {nodes}")
    layout = submission.layout_in(state)

    def with_places(before: Submission) -> Submission:
        if before.wanted not in (0, nodes, len(layout)) and nodes != len(layout):
            raise StateMismatch(
                f"flow {name!r} is on its way to {before.wanted} nodes: wait until it has them, or "
                f"let it stay as it is with `driftline rescale {name} {len(layout)}`"
            )
        if nodes == len(layout) or nodes == before.wanted:  # also: gives up what is under way
            return replace(before, wanted=nodes)
        return replace(before, nodes=next_places(tree, before, state, nodes), wanted=nodes)

    return change(tree, name, with_places)


def check_rescalable(name: str, policy: Policy) -> None:
    """Raises FlowError if a flow with this policy keeps its number of nodes."""
    if not policy.resizes:
        raise FlowError(
            f"flow {name!r} runs with {policy.name}, and keeps its number of nodes: only "
            "exactly-once can change it, as its state and its outputs are cut at one place in the "
            "order of all records"
        )


def next_places(
    tree: Tree, submission: Submission, state: ClusterState | None, nodes: int
) -> tuple[str, ...]:
    """The places of all nodes, with those of the next layout. Raises Unavailable.

    The slots of the nodes of now count as free: these end as soon as the next ones run.
    """
    layout = submission.layout_in(state)
    first, used = max(layout) + 1, taken_slots(tree)
    used.subtract(submission.place_of(number) for number in layout)
    return submission.nodes[:first] + tuple(spread(agents(tree), Kind.NODE, nodes, used))


def follow_agents(
    tree: Tree, known: Sequence[Submission], states: Mapping[str, ClusterState | None]
) -> None:
    """Let elastic flows have a node at each agent for nodes, also at those that have come.

    Every agent for nodes looks; the first one asks. Raises Unavailable.
    """
    elastic = [each for each in known if each.elastic and each.wish is Wish.RUN]
    if not elastic:
        return
    count = sum(agent.kind is Kind.NODE for agent in agents(tree))
    for each in elastic:
        state = states[each.name]
        if state is None or not state.incarnation or ended_by(state, each):
            continue
        if max(len(each.layout_in(state)), each.wanted) < min(count, each.groups):
            try:
                rescale(tree, each.name, min(count, each.groups))
            except (Conflict, Unavailable, StateMismatch) as error:
                log.warning("flow %s cannot follow the agents: %s", each.name, error)
            else:
                told = about("elastic", flow=each.name, nodes=count)
                log.info("flow %s is to have %d nodes", each.name, count, extra=told)
