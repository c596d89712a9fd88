"""The plan: a flow cut into operator chains at its shuffles, the same on every node.

A *port* is the entry of a chain: a source (fed by its front) or a keyed operator (fed by the
shuffle before it). A port's *stage* is the number of shuffles on the longest path from a source to
it. So all frames for a port come from earlier stages, or from itself (`Operator.loops`), and a
tracker knows for each stage the time up to which its input is complete. An additional stage after
the last one represents outputs that the barrier has not released yet.
"""

from hashlib import blake2b
from operator import itemgetter

from msgspec import Struct

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.operator import Vertex
from driftline.engine.wire.codec import pack


class Port(Struct, frozen=True):
    """Entry of an operator chain, at `vertex`.

    `upstreams`: the numbers of the ports whose chains send to this port, including its own if the
    operator loops; empty for a source. `front`: the number of the front that feeds a source;
    None for other ports.
    """

    number: int
    vertex: Vertex
    stage: int
    upstreams: tuple[int, ...]
    front: int | None


class Plan(Struct, frozen=True):
    """Validated flow, its ports (sources first), and the number of stages.

    `stages` does not count the additional stage for unreleased outputs.
    """

    flow: Flow
    ports: tuple[Port, ...]
    stages: int

    @property
    def fronts(self) -> int:
        """Number of fronts: one per source."""
        return len(self.flow.sources)

    @property
    def waiting_ports(self) -> list[Port]:
        """Ports whose elements wait for the frontier: of operators with timers (`TimedStep`)."""
        return [port for port in self.ports if port.vertex.on_timer is not None]

    def ports_of_stage(self, stage: int) -> list[Port]:
        """Return the ports of a stage."""
        return [port for port in self.ports if port.stage == stage]

    def port_of(self, vertex: int) -> Port:
        """Return the port at the vertex with this number. Precondition: there is one."""
        return next(port for port in self.ports if port.vertex.number == vertex)

    def identity(self) -> str:
        """Return a digest of the flow. Flows with equal digests can use each other's state."""
        shape = [
            (
                v.number,
                v.kind,
                v.name,
                v.inputs,
                v.state_types,
            )
            for v in self.flow.vertices
        ]
        digest = blake2b(pack((self.flow.name, self.flow.groups, shape)), digest_size=8)
        return digest.hexdigest()


def make_plan(flow: Flow) -> Plan:
    """Cut a flow at its shuffles. Raises FlowError if the flow is not valid."""
    flow.validate()
    entries = flow.sources + [v for v in flow.vertices if v.is_keyed]
    port_of_vertex = {vertex.number: i for i, vertex in enumerate(entries)}
    upstreams: dict[int, list[int]] = {i: [] for i in range(len(entries))}
    for i, entry in enumerate(entries):
        for vertex in chain_of(flow, entry):
            for successor in flow.successors(vertex.number):
                if successor.is_keyed and i not in upstreams[port_of_vertex[successor.number]]:
                    upstreams[port_of_vertex[successor.number]].append(i)
    loops = {i for i, entry in enumerate(entries) if entry.operator.loops}
    stages: dict[int, int] = {}
    for i in range(len(entries)):  # entries are in topological order, as vertices are
        stages[i] = 1 + max((stages[upstream] for upstream in upstreams[i]), default=-1)
    ports = tuple(
        Port(
            number=i,
            vertex=entry,
            stage=stages[i],
            upstreams=(*upstreams[i], *([i] if i in loops else [])),
            front=i if entry.operator.is_source else None,
        )
        for i, entry in enumerate(entries)
    )
    return Plan(flow, ports, 1 + max(stages.values()))


def functions_follow(flow: Flow, vertex: Vertex) -> bool:
    """Return whether other functions of the same chain take the outputs of a vertex."""
    return any(successor.function is not None for successor in chain_of(flow, vertex)[1:])


def function_names(flow: Flow, entry: Vertex) -> list[str]:
    """Return names for the functions that a chain calls: the names of their operators.

    The shuffles of the chain call the key functions of the keyed operators after it: these are
    named "key of NAME". Keys that are fields are left out.
    """
    chain = chain_of(flow, entry)
    successors = {
        successor.number: successor for v in chain for successor in flow.successors(v.number)
    }
    names = [vertex.name for vertex in chain if vertex.function is not None]
    return names + [
        f"key of {vertex.name}"
        for vertex in successors.values()
        if vertex.key is not None and not isinstance(vertex.key, itemgetter)
    ]


def chain_of(flow: Flow, entry: Vertex) -> list[Vertex]:
    """Return the operator chain that starts at `entry`: all vertices before the next shuffle."""
    chain = [entry]
    for vertex in chain:
        for successor in flow.successors(vertex.number):
            if not successor.is_keyed and successor not in chain:
                chain.append(successor)
    return chain
