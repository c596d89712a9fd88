"""Operator chains: the steps between two shuffles, joined so that each pushes into the next."""

from __future__ import annotations

from collections.abc import Callable

from driftline.engine.flow.flow import Vertex
from driftline.engine.flow.plan import Plan, Port, functions_follow
from driftline.engine.keygroups import Owners
from driftline.engine.operators.ends import Maker, Outbound, Shuffle, Sink
from driftline.engine.operators.steps import (
    Failures,
    FanOut,
    Filter,
    FlatMap,
    Hold,
    Map,
    Stateless,
    Step,
)

KeyedStep = Callable[[Vertex, Step, Failures, Maker], Step]
"""Makes the step of a keyed operator: `Speculative` or `Arrival`."""


class Chains:
    """All chains of a plan on one node.

    `entries[p]`: the first step of the chain at port p; `outbounds[p, q][n]`: the batches that this
    chain has for port q on node n.
    """

    def __init__(self, plan: Plan, owners: Owners, barrier: Hold, keyed: KeyedStep) -> None:
        self.plan = plan
        self.barrier = barrier
        self.keyed = keyed
        self.failures = Failures(barrier)
        self.owners = owners
        self.outbounds = {
            (before, port.number): [Outbound() for _ in range(owners.nodes)]
            for port in plan.ports
            for before in port.feeders
        }
        self.entries: list[Step] = [_Chain(self, port).entry() for port in plan.ports]


_STATELESS: dict[str, type[Stateless]] = {"map": Map, "filter": Filter, "flat_map": FlatMap}


class _Chain:
    """Joins the steps of one chain.

    A vertex gets one step for each operator whose outputs reach it: the ends of the chain have to
    know which operator has made an output.
    """

    def __init__(self, chains: Chains, port: Port) -> None:
        self.all = chains
        self.flow = chains.plan.flow
        self.port = port
        self.steps: dict[tuple[int, str], Step] = {}

    def entry(self) -> Step:
        vertex = self.port.vertex
        if vertex.kind == "source":
            return self._after(vertex, Maker(vertex.name, None))
        maker = Maker(vertex.name, vertex.fields, functions_follow(self.flow, vertex))
        return self.all.keyed(vertex, self._after(vertex, maker), self.all.failures, maker)

    def _after(self, vertex: Vertex, maker: Maker) -> Step:
        edges = [self._step(after, maker) for after in self.flow.outputs_of(vertex.number)]
        return edges[0] if len(edges) == 1 else FanOut(edges)

    def _step(self, vertex: Vertex, maker: Maker) -> Step:
        place = vertex.number, maker.name
        if place not in self.steps:
            self.steps[place] = self._make(vertex, maker)
        return self.steps[place]

    def _make(self, vertex: Vertex, maker: Maker) -> Step:
        failures = self.all.failures
        if vertex.keyed:
            port = self.all.plan.port_of(vertex.number)
            outbounds = self.all.outbounds[self.port.number, port.number]
            return Shuffle(port, self.all.owners, outbounds, failures, maker)
        if vertex.kind == "sink":
            return Sink(self.flow.sinks.index(vertex), self.all.barrier, maker, failures)
        if vertex.kind == "union":
            return self._after(vertex, maker)
        assert vertex.function is not None
        if vertex.kind != "filter":
            maker = Maker(vertex.name, vertex.fields)
        after = self._after(vertex, maker)
        follow = functions_follow(self.flow, vertex)
        return _STATELESS[vertex.kind](vertex, vertex.function, after, failures, follow)
