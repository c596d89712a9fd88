"""The plan: a flow cut into chains at its shuffles, the same on every node.

A *port* is where frames enter a chain: a source (fed by its front) or a keyed operator (fed by
the shuffle before it). `stage` numbers the chains along the longest way from a source, so a
port's frames are made only in earlier stages; that is what lets trackers say for a stage how
far its input is complete. The stage after the last stands for what is held back on its way out.
"""

from dataclasses import dataclass
from hashlib import blake2b

from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.wire.codec import pack


@dataclass(frozen=True, slots=True)
class Port:
    """An entry of a chain. `feeders`: ports whose chains send to it; empty for a source."""

    number: int
    vertex: Vertex
    stage: int
    feeders: tuple[int, ...]
    front: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A validated flow and its ports, sources first."""

    flow: Flow
    ports: tuple[Port, ...]
    stages: int

    @property
    def fronts(self) -> int:
        """Number of fronts: one for each source."""
        return len(self.flow.sources)

    def of_stage(self, stage: int) -> list[Port]:
        """The ports of a stage."""
        return [port for port in self.ports if port.stage == stage]

    def port_of(self, vertex: int) -> Port:
        """The port at a vertex."""
        return next(port for port in self.ports if port.vertex.number == vertex)

    def sinks_of(self, port: Port) -> list[Vertex]:
        """Sinks that a port's chain can reach without a shuffle."""
        return [v for v in chain_of(self.flow, port.vertex) if v.kind == "sink"]

    def identity(self) -> str:
        """Tells apart flows whose state does not fit each other."""
        shape = [
            (
                v.number,
                v.kind,
                v.name,
                v.inputs,
                tuple((type(s).__name__, s.name) for s in v.states),
            )
            for v in self.flow.vertices
        ]
        digest = blake2b(pack((self.flow.name, self.flow.groups, shape)), digest_size=8)
        return digest.hexdigest()


def plan(flow: Flow) -> Plan:
    """Cut a flow at its shuffles. Raises FlowError if it cannot run."""
    flow.validate()
    entries = flow.sources + [v for v in flow.vertices if v.keyed]
    numbers = {vertex.number: i for i, vertex in enumerate(entries)}
    feeders: dict[int, list[int]] = {i: [] for i in range(len(entries))}
    for i, entry in enumerate(entries):
        for vertex in chain_of(flow, entry):
            for after in flow.outputs_of(vertex.number):
                if after.keyed and i not in feeders[numbers[after.number]]:
                    feeders[numbers[after.number]].append(i)
    stage: dict[int, int] = {}
    for i in range(len(entries)):  # vertices, and so entries, are in topological order
        stage[i] = 1 + max((stage[before] for before in feeders[i]), default=-1)
    ports = tuple(
        Port(i, entry, stage[i], tuple(feeders[i]), i if entry.kind == "source" else None)
        for i, entry in enumerate(entries)
    )
    return Plan(flow, ports, 1 + max(stage.values()))


def functions_follow(flow: Flow, vertex: Vertex) -> bool:
    """Whether outputs of a vertex come to functions before they leave the chain."""
    return any(after.function is not None for after in chain_of(flow, vertex)[1:])


def chain_of(flow: Flow, entry: Vertex) -> list[Vertex]:
    """The entry and every vertex that its elements reach before the next shuffle."""
    found = [entry]
    for vertex in found:
        for after in flow.outputs_of(vertex.number):
            if not after.keyed and after not in found:
                found.append(after)
    return found
