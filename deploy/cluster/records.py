"""What a cluster's tree holds: agents, and the flows that are submitted. JSON, for people to read.

An agent runs processes of its roles on its host. A flow has places: the agents of its nodes and of
its fronts, by their numbers. A place never moves, as its state is on the agent's disk; another
number of nodes means other nodes, with higher numbers. A master has nothing on its disk: every
agent with that role runs one for each flow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from driftline.coordinator.registry import ClusterState
from driftline.deploy.runtime.config import LIMITS, Limits, Reading
from driftline.engine.errors import StateMismatch
from driftline.engine.keygroups import Layout, names_of
from driftline.engine.policy import POLICIES
from driftline.engine.snapshots.fitting import NOTHING, InitialState

_Positive = Annotated[int, msgspec.Meta(ge=1)]

_Record = TypeVar("_Record", "AgentRecord", "Submission")


class AgentRole(StrEnum):
    """A role of an agent: what it runs."""

    MASTER = "master"
    NODE = "node"
    FRONT = "front"


class DesiredState(StrEnum):
    """What is wanted of a flow."""

    RUN = "run"
    STOP = "stop"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent that lives."""

    name: str
    roles: tuple[AgentRole, ...]
    host: str
    slots: int
    """How many nodes and fronts it takes; masters take none."""
    pid: int = 0
    trouble: tuple[tuple[str, str], ...] = ()
    """(flow, what keeps it from running here)"""
    public: str = ""
    """The public key of its processes; "": they have none."""
    state: str = ""
    """Its state directory, on its host."""

    def encode(self) -> bytes:
        """The bytes to store."""
        return _encoded(self)

    @staticmethod
    def decode(data: bytes) -> AgentRecord:
        """Decode `encode`. Raises StateMismatch."""
        return _decoded(data, AgentRecord, "an agent")


@dataclass(frozen=True, slots=True)
class Submission:
    """A flow that is submitted.

    `identity`, `code`, `lineage`, `session`, `run`: see `ProcessConfig`; `output`: a directory on
    each host of a node, or the address of a sink; "" if there is a `consumer`.
    """

    name: str
    flow: str
    output: str
    count: _Positive
    """How many nodes the flow began with."""
    nodes: tuple[str, ...]
    """Number of a node -> its agent; also of nodes that are over, or are to come. It only grows."""
    fronts: tuple[str, ...]
    """The agent of each front."""
    policy: str
    ordering: str
    checkpoint_s: float
    dead_letters: bool
    identity: str
    code: str
    lineage: str
    session: int
    run: str
    groups: _Positive
    reading: Reading = field(default_factory=Reading)
    limits: Limits = LIMITS
    wheel: str = ""
    """The name of the wheel that has the flow, if one was sent; the tree has it."""
    spares: int = 0
    beginning: InitialState = NOTHING
    wish: DesiredState = DesiredState.RUN
    wanted: int = 0
    """How many nodes it is to have; 0: as many as it has."""
    wanted_from: int = 0
    """The number of the first one of the nodes that were asked for last."""
    consumer: str = ""
    """The address of the one consumer of all outputs; "": each node opens `output`."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"there is no policy {self.policy!r}")

    def encode(self) -> bytes:
        """The bytes to store."""
        return _encoded(self)

    @staticmethod
    def decode(data: bytes) -> Submission:
        """Decode `encode`. Raises StateMismatch."""
        return _decoded(data, Submission, "a submission")

    def layout_in(self, state: ClusterState | None) -> Layout:
        """The nodes of now, by their numbers; `state`: what the registry holds."""
        return (state.layout if state is not None else ()) or tuple(range(self.count))

    def next_in(self, layout: Layout) -> range:
        """The nodes that are to take over from those of a layout, by their numbers."""
        return range(max(self.wanted_from, max(layout) + 1), len(self.nodes))

    def place_of(self, node: int) -> str:
        """The agent of a node; "" if it has none."""
        return self.nodes[node] if node < len(self.nodes) else ""

    def processes_of(self, agent: str, roles: Collection[AgentRole], layout: Layout) -> list[str]:
        """The processes that an agent with these roles runs for the flow in a layout."""
        masters = ["master"] if AgentRole.MASTER in roles else []
        nodes = names_of(number for number in layout if self.place_of(number) == agent)
        fronts = [f"front-{i}" for i, place in enumerate(self.fronts) if place == agent]
        return masters + nodes + fronts

    def concerns(self, agent: str, roles: Collection[AgentRole], layout: Layout) -> bool:
        """Whether an agent has processes of the flow, or is to have some."""
        to_have = agent in map(self.place_of, self.next_in(layout))
        return to_have or bool(self.processes_of(agent, roles, layout))


def _encoded(record: AgentRecord | Submission) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def _decoded(data: bytes, kind: type[_Record], what: str) -> _Record:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StateMismatch(
            f"its record as {what} is damaged, or was written by another version: {error}"
        ) from None
