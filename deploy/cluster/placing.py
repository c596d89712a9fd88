"""Placing: which agents get the processes of a flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from driftline.deploy.cluster.records import AgentRecord, Role
from driftline.deploy.cluster.submissions import going_on
from driftline.deploy.cluster.tree import Tree
from driftline.engine.errors import Unavailable
from driftline.engine.texts import counted

Taken = Mapping[str, Counter[str]]
"""Flow -> how many slots of each agent it takes."""


def taken_slots(tree: Tree, but: str = "") -> dict[str, Counter[str]]:
    """The slots that are taken by flows that go on, `but` one. Raises Unavailable."""
    taken: dict[str, Counter[str]] = {}
    for each, state in going_on(tree, but):
        layout = each.layout_in(state)
        own = taken[each.name] = Counter(map(each.place_of, layout))
        if each.wanted not in (0, len(layout)):
            own.update(map(each.place_of, each.next_in(layout)))
        own.update(each.fronts)
    return taken


def spread(alive: Sequence[AgentRecord], role: Role, count: int, taken: Taken) -> list[str]:
    """The agents of so many processes: those with the fewest first. `taken`: slots that are.

    Raises Unavailable if there are too few slots.
    """
    fitting = [agent for agent in alive if role in agent.roles and agent.slots]
    used = sum(taken.values(), Counter[str]())
    free = {agent.name: agent.slots - used[agent.name] for agent in fitting}
    chosen: list[str] = []
    for _ in range(count):
        left = [name for name in free if free[name] > 0]
        if not left:
            if not fitting:
                raise Unavailable(f"there is no agent for {role}s: start `driftline agent`")
            have = sum(agent.slots for agent in fitting)
            raise Unavailable(
                f"{count} {role} process{'es' * (count > 1)} needed, and there are "
                f"{counted(have, 'slot')} at {counted(len(fitting), 'agent')}, of which "
                f"{_by_flow(taken, fitting)}: start another `driftline agent`, or one with more "
                "--slots"
            )
        name = min(left, key=lambda name: (chosen.count(name), -free[name], name))
        free[name] -= 1
        chosen.append(name)
    return chosen


def _by_flow(taken: Taken, fitting: Sequence[AgentRecord]) -> str:
    """How many slots of these agents are taken, and by which flows."""
    counts = {flow: sum(of[agent.name] for agent in fitting) for flow, of in taken.items()}
    total = sum(counts.values())
    which = ", ".join(f"{flow} ({count})" for flow, count in counts.items() if count)
    return f"{total} {'is' if total == 1 else 'are'} taken{' by ' * bool(which)}{which}"
