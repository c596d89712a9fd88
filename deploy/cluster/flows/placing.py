"""Placing: which agents get the processes of a flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from driftline.deploy.cluster.flows.outcomes import ended_by
from driftline.deploy.cluster.flows.records import AgentRecord, Kind
from driftline.deploy.cluster.flows.submissions import submissions
from driftline.deploy.cluster.tree.tree import Tree
from driftline.engine.counted import counted
from driftline.engine.errors import StateMismatch, Unavailable


def taken_slots(tree: Tree, but: str = "") -> Counter[str]:
    """How many slots of each agent are taken by flows that go on, `but` one. Raises Unavailable."""
    taken: Counter[str] = Counter()
    for each in submissions(tree):
        if each.name == but:
            continue
        try:
            state = tree.registry(each.name).read()
        except StateMismatch:  # it is damaged: what runs of the flow may go on
            state = None
        if state is None or not ended_by(state, each):
            layout = each.layout_in(state)
            taken.update(map(each.place_of, layout))
            if each.wanted not in (0, len(layout)):
                taken.update(map(each.place_of, each.next_in(layout)))
            taken.update(each.fronts)
    return taken


def spread(alive: Sequence[AgentRecord], kind: Kind, count: int, used: Counter[str]) -> list[str]:
    """The agents of so many processes: those with the fewest first. `used`: slots that are taken.

    Raises Unavailable if there are too few slots.
    """
    fitting = [agent for agent in alive if agent.kind is kind]
    free = {agent.name: agent.slots - used[agent.name] for agent in fitting}
    chosen: list[str] = []
    for _ in range(count):
        left = [name for name in free if free[name] > 0]
        if not left:
            have = sum(agent.slots for agent in fitting)
            taken = sum(used[agent.name] for agent in fitting)
            if not fitting:
                raise Unavailable(f"there is no agent for {kind}s: start `driftline {kind}`")
            are = "is" if taken == 1 else "are"
            raise Unavailable(
                f"{count} {kind} process{'es' * (count > 1)} needed, and there are "
                f"{counted(have, 'slot')} at {counted(len(fitting), 'agent')}, of which {taken} "
                f"{are} taken: start another `driftline {kind}`, or one with more --slots"
            )
        name = min(left, key=lambda name: (chosen.count(name), -free[name], name))
        free[name] -= 1
        chosen.append(name)
    return chosen
