"""Placement of a flow's processes: chooses their agents, at submission and for a rescaling.

A request to rescale is written to the submission, with numbers and agents for the next nodes. Then
agents forward it to the master, which makes the next layout (`coordinator.rescaling`), and each
agent starts those nodes of the layout that are assigned to it.

Each request uses new node numbers. Therefore a node never moves to another agent, even if the
master commits the layout of an earlier request at the same moment. The numbers also show the master
which of two requests is later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.records import AgentRecord, AgentRole, Submission
from driftline.deploy.cluster.submissions import (
    active_flows,
    has_ended,
    list_agents,
    registry_of,
    submission_of,
    update_submission,
)
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.engine.errors import FlowError, StateMismatch, Unavailable
from driftline.engine.policy import POLICIES, Policy
from driftline.engine.texts import counted

TakenSlots = Mapping[str, Counter[str]]
"""Flow -> agent -> number of slots that the flow takes there."""


def used_slots(tree: ZooKeeperTree, excluding: str = "") -> dict[str, Counter[str]]:
    """Return the slots that active flows take, without flow `excluding`.

    Includes the slots of nodes that a requested rescaling will add. Raises Unavailable.
    """
    taken: dict[str, Counter[str]] = {}
    for each, state in active_flows(tree, excluding):
        layout = each.current_layout(state)
        slots = taken[each.name] = Counter(map(each.agent_of, layout))
        if each.desired_nodes not in (0, len(layout)):
            slots.update(map(each.agent_of, each.next_layout(layout)))
        slots.update(each.front_agents)
    return taken


def choose_agents(
    alive: Sequence[AgentRecord], role: AgentRole, count: int, taken: TakenSlots
) -> list[str]:
    """Spread `count` processes of a role evenly over agents. Return the agent of each process.

    In a tie, prefer the agent with the most free slots. `taken`: slots in use. Raises Unavailable
    if there are too few free slots.
    """
    fitting = [agent for agent in alive if role in agent.roles and agent.slots]
    used = sum(taken.values(), Counter[str]())
    free = {agent.name: agent.slots - used[agent.name] for agent in fitting}
    chosen: list[str] = []
    for _ in range(count):
        candidates = [name for name in free if free[name] > 0]
        if not candidates:
            if not fitting:
                raise Unavailable(f"there is no agent for {role}s: start `driftline agent`")
            slots = sum(agent.slots for agent in fitting)
            raise Unavailable(
                f"{count} {role} process{'es' * (count > 1)} needed, and there are "
                f"{counted(slots, 'slot')} at {counted(len(fitting), 'agent')}, of which "
                f"{_describe_taken(taken, fitting)}: start another `driftline agent`, or one with "
                "more --slots"
            )
        name = min(candidates, key=lambda name: (chosen.count(name), -free[name], name))
        free[name] -= 1
        chosen.append(name)
    return chosen


def _describe_taken(taken: TakenSlots, fitting: Sequence[AgentRecord]) -> str:
    """Return a text that says how many slots of these agents are taken, and by which flows."""
    counts = {flow: sum(slots[agent.name] for agent in fitting) for flow, slots in taken.items()}
    total = sum(counts.values())
    flows = ", ".join(f"{flow} ({count})" for flow, count in counts.items() if count)
    return f"{total} {'is' if total == 1 else 'are'} taken{' by ' * bool(flows)}{flows}"


def rescale(tree: ZooKeeperTree, name: str, nodes: int) -> Submission:
    """Request another number of nodes for a flow. Return its submission with the nodes' agents.

    Raises FlowError if its policy or its number of key groups does not allow that number;
    StateMismatch if the flow is over, is being rescaled to a third number, or was submitted again;
    Unavailable if there is no such flow, or if there are too few slots.
    """
    submission = submission_of(tree, name)
    check_rescalable(name, POLICIES[submission.policy])
    if nodes > submission.groups:
        raise FlowError(
            f"flow {name!r} has {submission.groups} key groups, which limit its number of nodes"
        )

    def with_requested_nodes(latest: Submission) -> Submission:
        state = registry_of(tree, name)
        if has_ended(state, latest):
            raise StateMismatch(f"flow {name!r} is over: submit it again, with --nodes {nodes}")
        current = len(latest.current_layout(state))
        if nodes == (latest.desired_nodes or current):
            return latest
        if latest.desired_nodes not in (0, current) and nodes != current:
            raise StateMismatch(
                f"flow {name!r} is being rescaled to {counted(latest.desired_nodes, 'node')}: wait "
                f"until it has them, or withdraw the request with `driftline rescale {name} "
                f"{current}`"
            )
        return with_desired_nodes(tree, latest, state, nodes)

    return update_submission(tree, name, with_requested_nodes, submission.run)


def cancel_rescale(tree: ZooKeeperTree, submission: Submission) -> Submission:
    """Withdraw a submission's request to rescale, unless a later request has replaced it.

    Return the latest submission. Raises RunReplaced if the flow was submitted again; Unavailable,
    StateMismatch.
    """

    def with_current_nodes(latest: Submission) -> Submission:
        if latest.first_desired_node != submission.first_desired_node:
            return latest
        state = registry_of(tree, latest.name)
        return with_desired_nodes(tree, latest, state, len(latest.current_layout(state)))

    return update_submission(tree, submission.name, with_current_nodes, submission.run)


def with_desired_nodes(
    tree: ZooKeeperTree, submission: Submission, state: ClusterState, nodes: int
) -> Submission:
    """Return the submission with a request for `nodes` nodes, and with agents for them.

    If this is the current number, an earlier request is withdrawn. Even then the current agents get
    new node numbers, as the master may switch to the nodes of the earlier request before it learns
    of the withdrawal. Raises Unavailable if there are too few slots.
    """
    layout = submission.current_layout(state)
    if nodes == len(layout):
        agents = [submission.agent_of(number) for number in layout]
    else:
        # The current nodes end as soon as the next ones run: their slots count as free.
        taken = used_slots(tree, excluding=submission.name)
        taken[submission.name] = Counter(submission.front_agents)
        agents = choose_agents(list_agents(tree), AgentRole.NODE, nodes, taken)
    return replace(
        submission,
        node_agents=submission.node_agents + tuple(agents),
        desired_nodes=nodes,
        first_desired_node=len(submission.node_agents),
    )


def check_rescalable(name: str, policy: Policy) -> None:
    """Raise FlowError if a flow with this policy cannot change its number of nodes.

    `name`: the flow's.
    """
    if not policy.can_rescale:
        raise FlowError(
            f"flow {name!r} runs with {policy.name}, and keeps its number of nodes: only "
            "exactly-once allows a change, as it can cut state and outputs at one point in the "
            "order of all records"
        )
