"""Steps: the operators of a segment on a node, joined so that one pushes into the next.

A step is handed elements as columns: labels, payloads, and signs (+1, or -1 for a tombstone;
None when all are +1, as nearly always). It works on the whole block and pushes the result on:
per element there are a few operations in C or in one tight loop, everything else is per block.

A user function that raises makes a `Failure` at the element's label instead of an output
(design: errors are outputs); the element goes no further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, groupby
from typing import Protocol

from engine.codec import travelled
from engine.context import Failure
from engine.errors import PayloadError
from engine.flow import Function, Vertex
from engine.keygroups import Owners
from engine.labels import Label
from engine.plan import Plan, Port
from engine.runs import Labels, Run, numbered, select, times

Values = list[object]
Signs = list[int] | None
Elements = tuple[Labels, Values, Signs]
"""A block: labels, payloads, and signs (None: all +1) of elements."""

MANY = 16
"""Elements from which on a block is worth being one of its own."""


class Step(Protocol):
    """Takes blocks of elements."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Work on a block. The three columns are of one length and belong to the step now."""


class Hold(Protocol):
    """Takes the outputs of a node: the barrier."""

    def hold(self, sink: int, labels: Labels, values: Values, signs: Signs) -> None:
        """Take outputs of a sink; sink FAILURES takes the payloads of failures."""


FAILURES = -1
"""The number of the output that failures go to."""


class Failures:
    """Where steps report failures."""

    def __init__(self, barrier: Hold) -> None:
        self.barrier = barrier

    def add(self, label: Label, failure: Failure, sign: int) -> None:
        """Report one failure, or take it back."""
        self.barrier.hold(FAILURES, [label], [failure.payload()], [sign])


class Stateless:
    """Base of map, filter and flat_map: one user function and what comes after."""

    def __init__(self, vertex: Vertex, function: Function, after: Step, failures: Failures) -> None:
        self.name = vertex.name
        self.function = function
        self.after = after
        self.failures = failures

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        try:
            blocks = self.apply(labels, values, signs)
        except Exception as error:
            if len(labels) == 1:
                sign = 1 if signs is None else signs[0]
                self.failures.add(labels[0], Failure.of(self.name, None, values[0], error), sign)
                return
            for i, label in enumerate(labels):
                self.push([label], [values[i]], None if signs is None else [signs[i]])
            return
        for block in blocks:
            self.after.push(*block)

    def apply(self, labels: Labels, values: Values, signs: Signs) -> list[Elements]:
        """The outputs of a block, in blocks. May raise what the user function raises."""
        raise NotImplementedError


class Map(Stateless):
    """One output, at the label of its input."""

    def apply(self, labels: Labels, values: Values, signs: Signs) -> list[Elements]:
        return [(labels, list(map(self.function, values)), signs)]


class Filter(Stateless):
    """The same element or nothing."""

    def apply(self, labels: Labels, values: Values, signs: Signs) -> list[Elements]:
        kept = list(map(self.function, values))
        if all(kept):
            return [(labels, values, signs)]
        return [chosen((labels, values, signs), kept)] if any(kept) else []


class FlatMap(Stateless):
    """Any number of outputs, each at the label of its input and its number."""

    def apply(self, labels: Labels, values: Values, signs: Signs) -> list[Elements]:
        made: list[Values] = [iterable(self.function(value)) for value in values]
        return children(labels, made, signs)


def chosen(block: Elements, those: Sequence[object]) -> Elements:
    """Those elements of a block for which this is true."""
    labels, values, signs = block
    return (
        select(labels, those),
        list(compress(values, those)),
        None if signs is None else list(compress(signs, those)),
    )


def by_time(block: Elements) -> list[tuple[int, Elements]]:
    """The parts of a block that are of one time each: runs of equal times, in its order."""
    labels, values, signs = block
    found = times(labels)
    if len(found) == 1:  # nearly always: a block of one root
        return [(found[0], block)]
    parts: list[tuple[int, Elements]] = []
    start = 0
    rows = list(labels)
    for time, run in groupby(found):
        end = start + len(list(run))
        part = rows[start:end], values[start:end], None if signs is None else signs[start:end]
        parts.append((time, part))
        start = end
    return parts


def without_bad_payloads(vertex: Vertex, failures: Failures, block: Elements) -> Elements:
    """The elements that can travel to a keyed operator; the others become failures."""
    assert vertex.key is not None
    labels, values, signs = block
    good: list[bool] = []
    for i, value in enumerate(values):
        try:
            travelled(value)
        except PayloadError as error:
            failure = Failure.of(vertex.name, vertex.key(value), value, error)
            failures.add(labels[i], failure, signs[i] if signs else 1)
            good.append(False)
        else:
            good.append(True)
    return chosen(block, good)


def children(labels: Labels, made: list[Values], signs: Signs) -> list[Elements]:
    """The outputs `made` of the elements with these labels, in blocks.

    The outputs of an element that makes many are a block of their own: what they have in common,
    as the id of a document, is then written once, and is one object again where they arrive.
    """
    every = signs or [1] * len(labels)
    if sum(map(len, made)) >= MANY * len(labels):
        return [
            (Run(label, range(len(outputs))), outputs, signs and [sign] * len(outputs))
            for label, outputs, sign in zip(labels, made, every, strict=True)
            if outputs
        ]
    joined: list[Label] = []
    for label, outputs in zip(labels, made, strict=True):
        joined += [(*label, i) for i in range(len(outputs))]
    if not joined:
        return []
    if signs:
        signs = [s for s, outputs in zip(signs, made, strict=True) for _ in outputs]
    return [(joined, list(chain.from_iterable(made)), signs)]


class FanOut:
    """A vertex with several edges: each appends its number to the path."""

    def __init__(self, edges: list[Step]) -> None:
        self.edges = edges

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        for number, edge in enumerate(self.edges):
            edge.push(numbered(labels, number), list(values), signs)


class Sink:
    """The end of the flow on this node: outputs go to the barrier."""

    def __init__(self, number: int, barrier: Hold) -> None:
        self.number = number
        self.barrier = barrier

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        self.barrier.hold(self.number, labels, values, signs)


class Outbound:
    """Blocks waiting to leave this node for one port on one node."""

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: list[Elements] = []

    def add(self, block: Elements) -> None:
        """Append a block; small ones are joined."""
        if self.blocks and len(self.blocks[-1][0]) + len(block[0]) < MANY:
            self.blocks[-1] = _joined(self.blocks[-1], block)
        elif block[0]:
            self.blocks.append(block)

    def take(self) -> list[Elements]:
        """Everything that waits; nothing waits any more."""
        taken, self.blocks = self.blocks, []
        return taken


def _joined(one: Elements, other: Elements) -> Elements:
    signs: Signs = None
    if one[2] or other[2]:
        signs = (one[2] or [1] * len(one[0])) + (other[2] or [1] * len(other[0]))
    return [*one[0], *other[0]], one[1] + other[1], signs


class Shuffle:
    """Sends each element to the node that owns its key."""

    def __init__(
        self, port: Port, owners: Owners, outbounds: list[Outbound], failures: Failures
    ) -> None:
        assert port.vertex.key is not None
        self.name = port.vertex.name
        self.key = port.vertex.key
        self.owners = owners
        self.outbounds = outbounds
        self.failures = failures

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        try:
            owners = self.owners.of(list(map(self.key, values)))
        except Exception as error:
            if len(labels) == 1:
                sign = 1 if signs is None else signs[0]
                failure = Failure.of(f"key of {self.name}", None, values[0], error)
                self.failures.add(labels[0], failure, sign)
                return
            for i, label in enumerate(labels):
                self.push([label], [values[i]], None if signs is None else [signs[i]])
            return
        block = labels, values, signs
        if len(self.outbounds) == 1:
            self.outbounds[0].add(block)
            return
        for node, outbound in enumerate(self.outbounds):
            outbound.add(chosen(block, [owner == node for owner in owners]))


KeyedStep = Callable[[Vertex, Step, Failures], Step]
"""Makes the step of a keyed operator: what differs between the orders."""


class Segments:
    """All segments of a plan on one node: `entries[p]` takes what arrives at port p.

    `outbounds[p, q][n]` collects what the segment of port p sends to port q of node n.
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
        self.entries: list[Step] = [_Segment(self, port).entry() for port in plan.ports]


class _Segment:
    """Joins the steps of one segment; a vertex reached on several ways gets one step."""

    def __init__(self, segments: Segments, port: Port) -> None:
        self.all = segments
        self.flow = segments.plan.flow
        self.port = port
        self.steps: dict[int, Step] = {}

    def entry(self) -> Step:
        vertex = self.port.vertex
        if vertex.kind == "source":
            return self._after(vertex)
        return self.all.keyed(vertex, self._after(vertex), self.all.failures)

    def _after(self, vertex: Vertex) -> Step:
        edges = [self._step(after) for after in self.flow.outputs_of(vertex.number)]
        return edges[0] if len(edges) == 1 else FanOut(edges)

    def _step(self, vertex: Vertex) -> Step:
        if vertex.number not in self.steps:
            self.steps[vertex.number] = self._make(vertex)
        return self.steps[vertex.number]

    def _make(self, vertex: Vertex) -> Step:
        if vertex.keyed:
            port = self.all.plan.port_of(vertex.number)
            outbounds = self.all.outbounds[self.port.number, port.number]
            return Shuffle(port, self.all.owners, outbounds, self.all.failures)
        if vertex.kind == "sink":
            return Sink(self.flow.sinks.index(vertex), self.all.barrier)
        after = self._after(vertex)
        if vertex.kind == "union":
            return after
        kinds: dict[str, type[Stateless]] = {"map": Map, "filter": Filter, "flat_map": FlatMap}
        assert vertex.function is not None
        return kinds[vertex.kind](vertex, vertex.function, after, self.all.failures)


def iterable(outputs: object) -> Values:
    """The outputs that a user function returned or yields. Raises TypeError for anything else."""
    if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
        return list(outputs)
    raise TypeError(f"the function must return an iterable of outputs, not {outputs!r:.100}")
