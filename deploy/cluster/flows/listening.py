"""What can be known of the addresses at which the fronts of a flow are to listen, before it runs.

An address that is none, one that other machines reach where nobody has keys, and one at which a
flow listens already, are refused at once. A port that a foreign process has is known on its host
alone: the agent tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from driftline.deploy.cluster.flows.outcomes import going_on
from driftline.deploy.cluster.flows.records import AgentRecord
from driftline.deploy.cluster.tree.tree import Tree
from driftline.deploy.host.guarding.listening import collide
from driftline.deploy.run.inputs.reach import check_form, check_open
from driftline.engine.errors import FlowError, InUse

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
