"""Steps: the operators of a segment on a node, joined so that one pushes into the next.

A step is handed elements as columns: labels, payloads, and signs (+1, or -1 for a tombstone;
None when all are +1, as nearly always). It works on the whole block and pushes the result on:
per element there are a few operations in C or in one tight loop, everything else is per block.

A user function that raises makes a `Failure` at the element's label instead of an output
(design: errors are outputs); the element goes no further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress, repeat
from typing import Protocol

from engine.codec import travelled
from engine.context import Failure
from engine.errors import PayloadError
from engine.flow import Function, Vertex
from engine.keygroups import OwnerCache
from engine.labels import Label
from engine.plan import Plan, Port

Labels = list[Label]
Values = list[object]
Signs = list[int] | None


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


def without_bad_payloads(
    vertex: Vertex, failures: Failures, labels: Labels, values: Values, signs: Signs
) -> tuple[Labels, Values, Signs]:
    """The elements that can travel to a keyed operator; the others become failures."""
    assert vertex.key is not None
    good: list[int] = []
    for i, value in enumerate(values):
        try:
            travelled(value)
        except PayloadError as error:
            failure = Failure.of(vertex.name, vertex.key(value), value, error)
            failures.add(labels[i], failure, signs[i] if signs else 1)
        else:
            good.append(i)
    return (
        [labels[i] for i in good],
        [values[i] for i in good],
        [signs[i] for i in good] if signs else None,
    )


class Stateless:
    """Base of map, filter and flat_map: one user function and what comes after."""

    def __init__(self, vertex: Vertex, function: Function, after: Step, failures: Failures) -> None:
        self.name = vertex.name
        self.function = function
        self.after = after
        self.failures = failures

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        try:
            block = self.apply(labels, values, signs)
        except Exception as error:
            if len(labels) == 1:
                sign = 1 if signs is None else signs[0]
                self.failures.add(labels[0], Failure.of(self.name, None, values[0], error), sign)
                return
            for i, label in enumerate(labels):
                self.push([label], [values[i]], None if signs is None else [signs[i]])
            return
        if block[0]:
            self.after.push(*block)

    def apply(self, labels: Labels, values: Values, signs: Signs) -> tuple[Labels, Values, Signs]:
        """The outputs of a block. May raise what the user function raises."""
        raise NotImplementedError


class Map(Stateless):
    """One output, at the label of its input."""

    def apply(self, labels: Labels, values: Values, signs: Signs) -> tuple[Labels, Values, Signs]:
        return labels, list(map(self.function, values)), signs


class Filter(Stateless):
    """The same element or nothing."""

    def apply(self, labels: Labels, values: Values, signs: Signs) -> tuple[Labels, Values, Signs]:
        kept = list(map(self.function, values))
        if all(kept):
            return labels, values, signs
        return (
            list(compress(labels, kept)),
            list(compress(values, kept)),
            None if signs is None else list(compress(signs, kept)),
        )


class FlatMap(Stateless):
    """Any number of outputs, each at the label of its input and its number."""

    def apply(self, labels: Labels, values: Values, signs: Signs) -> tuple[Labels, Values, Signs]:
        made: list[Values] = [iterable(self.function(value)) for value in values]
        return children(labels, made, signs)


def children(labels: Labels, made: list[Values], signs: Signs) -> tuple[Labels, Values, Signs]:
    """The block of the outputs `made` of the elements with these labels."""
    out_labels: Labels = []
    out_values: Values = []
    for label, outputs in zip(labels, made, strict=True):
        count = len(outputs)
        if len(label) == 2:  # a root's children, the common case, at the speed of C
            time, front = label
            out_labels += zip(repeat(time, count), repeat(front, count), range(count), strict=True)
        else:
            out_labels += [(*label, i) for i in range(count)]
        out_values += outputs
    if signs is None:
        return out_labels, out_values, None
    out_signs: list[int] = []
    for sign, outputs in zip(signs, made, strict=True):
        out_signs += [sign] * len(outputs)
    return out_labels, out_values, out_signs


class FanOut:
    """A vertex with several edges: each appends its number to the path."""

    def __init__(self, edges: list[Step]) -> None:
        self.edges = edges

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        for number, edge in enumerate(self.edges):
            edge.push([(*label, number) for label in labels], list(values), signs)


class Sink:
    """The end of the flow on this node: outputs go to the barrier."""

    def __init__(self, number: int, barrier: Hold) -> None:
        self.number = number
        self.barrier = barrier

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        self.barrier.hold(self.number, labels, values, signs)


class Outbound:
    """Elements waiting to leave this node for one port on one node."""

    __slots__ = ("labels", "signs", "values")

    def __init__(self) -> None:
        self.labels: Labels = []
        self.values: Values = []
        self.signs: Signs = None

    def add(self, labels: Iterable[Label], values: Iterable[object], signs: Signs) -> None:
        """Append elements."""
        if signs is not None and self.signs is None:
            self.signs = [1] * len(self.labels)
        self.labels += labels
        self.values += values
        if self.signs is not None:
            self.signs += signs if signs is not None else [1] * (len(self.labels) - len(self.signs))

    def take(self) -> tuple[Labels, Values, Signs]:
        """Everything that waits; nothing waits any more."""
        taken = self.labels, self.values, self.signs
        self.labels, self.values, self.signs = [], [], None
        return taken


class Shuffle:
    """Sends each element to the node that owns its key."""

    def __init__(
        self, port: Port, owners: OwnerCache, outbounds: list[Outbound], failures: Failures
    ) -> None:
        assert port.vertex.key is not None
        self.name = port.vertex.name
        self.key = port.vertex.key
        self.owners = owners
        self.outbounds = outbounds
        self.failures = failures

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        try:
            owners = list(map(self.owners.__getitem__, map(self.key, values)))
        except Exception as error:
            if len(labels) == 1:
                sign = 1 if signs is None else signs[0]
                failure = Failure.of(f"key of {self.name}", None, values[0], error)
                self.failures.add(labels[0], failure, sign)
                return
            for i, label in enumerate(labels):
                self.push([label], [values[i]], None if signs is None else [signs[i]])
            return
        if len(self.outbounds) == 1:
            self.outbounds[0].add(labels, values, signs)
            return
        for node, outbound in enumerate(self.outbounds):
            mine = list(map(node.__eq__, owners))
            outbound.add(
                compress(labels, mine),
                compress(values, mine),
                None if signs is None else list(compress(signs, mine)),
            )


KeyedStep = Callable[[Vertex, Step, Failures], Step]
"""Makes the step of a keyed operator: what differs between the orders."""


class Segments:
    """All segments of a plan on one node: `entries[p]` takes what arrives at port p.

    `outbounds[p, q][n]` collects what the segment of port p sends to port q of node n.
    """

    def __init__(self, plan: Plan, owners: OwnerCache, barrier: Hold, keyed: KeyedStep) -> None:
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
