"""Records in a cluster's tree in ZooKeeper: agents and submissions, as readable JSON.

An agent runs processes of its roles on its host. A submission names the agent of each node and of
each front, by their numbers. A node or front never moves to another agent, as its state is on the
agent's disk; a rescaling uses new nodes with higher numbers. A master stores nothing on disk: every
agent with that role runs one for each flow.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Struct, field

from driftline.coordinator.registry import ClusterState
from driftline.deploy.runtime.config import LIMITS, Limits, Reading
from driftline.engine.errors import StateMismatch
from driftline.engine.keygroups import Layout, node_names
from driftline.engine.policy import POLICIES
from driftline.engine.snapshots.savepoint_mapping import EMPTY_STATE, InitialState

_Positive = Annotated[int, msgspec.Meta(ge=1)]

_Record = TypeVar("_Record", "AgentRecord", "Submission")


class AgentRole(StrEnum):
    """A kind of process that an agent may run."""

    MASTER = "master"
    NODE = "node"
    FRONT = "front"


class DesiredState(StrEnum):
    """Desired state of a flow: run, end after a drain (STOP), or end at once (CANCEL)."""

    RUN = "run"
    STOP = "stop"
    CANCEL = "cancel"


class AgentRecord(Struct, frozen=True):
    """Record of a live agent."""

    name: str
    roles: tuple[AgentRole, ...]
    host: str
    slots: int
    """Maximum number of nodes and fronts; masters take no slot."""
    pid: int = 0
    problems: tuple[tuple[str, str], ...] = ()
    """(flow, why it cannot run here)"""
    public: str = ""
    """Public key of the agent's processes; "": they have none."""
    state: str = ""
    """State directory on the agent's host."""

    def encode(self) -> bytes:
        """Return the bytes to store."""
        return _encoded(self)

    @staticmethod
    def decode(data: bytes) -> AgentRecord:
        """Decode the result of `encode`. Raises StateMismatch."""
        return _decoded(data, AgentRecord, "agent")


class Submission(Struct, frozen=True):
    """A submitted flow, with its options.

    `flow`: the module or file that all its processes import. `identity`, `code`, `lineage`,
    `session`, `run`: see `ProcessConfig`. `output`: the address of a sink, or the path of a
    directory on the host of each node; "" if there is a `consumer`. `groups`: number of key groups.
    """

    name: str
    flow: str
    output: str
    initial_nodes: _Positive
    """Number of nodes at the first submission."""
    node_agents: tuple[str, ...]
    """Agent of each past, current and future node, by its number: the tuple only grows."""
    front_agents: tuple[str, ...]
    """Agent of each front, by the number of its source."""
    policy: str
    ordering: str
    snapshot_interval_s: float
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
    """Name of the wheel, stored in the tree, that contains the flow; "" if none was sent."""
    initial_state: InitialState = EMPTY_STATE
    desired_state: DesiredState = DesiredState.RUN
    desired_nodes: int = 0
    """Number of nodes that the last request to rescale asked for; 0: there was no request."""
    first_desired_node: int = 0
    """Number of the first node that belongs to the last request to rescale."""
    consumer: str = ""
    """Address of the service that consumes all outputs; "": each node opens `output`."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"unknown policy {self.policy!r}")

    def encode(self) -> bytes:
        """Return the bytes to store."""
        return _encoded(self)

    @staticmethod
    def decode(data: bytes) -> Submission:
        """Decode the result of `encode`. Raises StateMismatch."""
        return _decoded(data, Submission, "submission")

    def current_layout(self, state: ClusterState | None) -> Layout:
        """Return the numbers of the current nodes; `state`: the contents of the registry."""
        return (state.layout if state is not None else ()) or tuple(range(self.initial_nodes))

    def next_layout(self, layout: Layout) -> range:
        """Return the numbers of the nodes that are to replace those of a layout."""
        return range(max(self.first_desired_node, max(layout) + 1), len(self.node_agents))

    def agent_of(self, node: int) -> str:
        """Return the agent of a node; "" if it has none."""
        return self.node_agents[node] if node < len(self.node_agents) else ""

    def processes_of(self, agent: str, roles: Collection[AgentRole], layout: Layout) -> list[str]:
        """Return the names of the processes that an agent runs for the flow in this layout.

        `roles`: the agent's.
        """
        masters = ["master"] if AgentRole.MASTER in roles else []
        nodes = node_names(number for number in layout if self.agent_of(number) == agent)
        fronts = [f"front-{i}" for i, name in enumerate(self.front_agents) if name == agent]
        return masters + nodes + fronts

    def concerns(self, agent: str, roles: Collection[AgentRole], layout: Layout) -> bool:
        """Return whether an agent has processes of the flow, now or in the next layout."""
        is_next = agent in map(self.agent_of, self.next_layout(layout))
        return is_next or bool(self.processes_of(agent, roles, layout))


def _encoded(record: AgentRecord | Submission) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def _decoded(data: bytes, kind: type[_Record], what: str) -> _Record:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StateMismatch(
            f"its {what} record is damaged, or was written by another version: {error}"
        ) from None
