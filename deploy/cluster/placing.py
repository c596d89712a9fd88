"""Placing: which agents get the processes of a flow, and where its fronts can listen.

An address that is none, one that other machines reach where nobody has keys, and one at which a
flow listens already, are refused at once. A port that a foreign process has is known on its host
alone: the agent tells it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from driftline.deploy.cluster.records import AgentRecord, Role
from driftline.deploy.cluster.submissions import going_on
from driftline.deploy.cluster.tree import Tree
from driftline.deploy.host.guarding.listening import collide
from driftline.deploy.run.inputs.reach import check_form, check_open
from driftline.engine.errors import FlowError, InUse, Unavailable
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


SERVED = "serve://"
"""The beginning of an input whose front is in a `driftline serve`, which hears its clients itself;
its name is behind it."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A front that listens, or is to."""

    flow: str
    source: str
    address: str
    agent: str

    def __str__(self) -> str:
        return f"input {self.source}={self.address} of flow {self.flow!r}"


def check_forms(inputs: Iterable[Iterable[str]]) -> None:
    """Check that inputs that are addresses can be such, whatever agents there are.

    Raises FlowError.
    """
    for texts in inputs:
        for text in texts:
            if "://" in text:
                check_form(text)


def check_listeners(
    tree: Tree, wanted: Sequence[Listener], alive: Sequence[AgentRecord], *, let_anyone_send: bool
) -> None:
    """Check the inputs of a flow, those that are addresses. `alive`: the agents that live.

    Raises FlowError for what must not be, InUse for what others have taken.
    """
    by_name = {agent.name: agent for agent in alive}
    for each in wanted:
        agent = by_name.get(each.agent)
        if agent is None:
            continue  # it is not known whether it has keys
        keyed = agent.keyed and each.address.startswith("tcp://")
        try:
            check_open(each.address, let_anyone_send=let_anyone_send or keyed)
        except FlowError as error:
            raise FlowError(f"{each}, at agent {each.agent}: {error}") from None
    taken = list(_listening(tree, wanted[0].flow)) if wanted else []
    for each in wanted:
        for other in taken:
            if _at_one_machine(each, other, by_name) and collide(each.address, other.address):
                raise InUse(f"{each} cannot be heard: {_taken_by(other, each)}")
        taken.append(each)


def listeners(
    flow: str, inputs: Mapping[str, Sequence[str]], agents: Sequence[str]
) -> list[Listener]:
    """The fronts of a flow that listen; `inputs`: of each source, `agents`: of each front."""
    return [
        Listener(flow, source, text, agent)
        for (source, texts), agent in zip(inputs.items(), agents, strict=True)
        for text in texts
        if "://" in text and not text.startswith(SERVED)
    ]


def _listening(tree: Tree, but: str) -> Iterator[Listener]:
    """The fronts of all flows that go on, `but` of one."""
    for each, _ in going_on(tree, but):
        inputs: dict[str, list[str]] = {}
        for text in each.reading.inputs:
            source, _, given = text.partition("=")
            inputs.setdefault(source, []).append(given)
        yield from listeners(each.name, inputs, each.fronts)


def _taken_by(other: Listener, wanted: Listener) -> str:
    if other.flow == wanted.flow:
        return (
            f"its source {other.source!r} is to listen at {other.address}, on the same host, agent "
            f"{other.agent}: give another port"
        )
    return (
        f"flow {other.flow!r} listens at {other.address} for its source {other.source!r}, on the "
        f"same host, agent {other.agent}: give another port, or end that flow first: `driftline "
        f"stop {other.flow}`"
    )


def _at_one_machine(one: Listener, other: Listener, alive: Mapping[str, AgentRecord]) -> bool:
    """Whether two agents are certainly on one machine."""
    if one.agent == other.agent:
        return True
    known = alive.get(one.agent), alive.get(other.agent)
    places = [(agent.host, agent.address) for agent in known if agent is not None]
    return len(places) == len(known) and places[0] == places[1]  # hosts may share a name
