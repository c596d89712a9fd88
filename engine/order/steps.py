"""Steps: the operators of a chain on a node, joined so that one pushes into the next.

A step is handed elements as columns: labels, payloads, and signs (+1, or -1 for a tombstone;
None when all are +1, as nearly always). It works on the whole batch and pushes the result on:
per element there are a few operations in C or in one tight loop, everything else is per batch.

A user function that raises makes a `Failure` at the element's label instead of an output
(design: errors are outputs); the element goes no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, compress, groupby
from operator import countOf
from typing import Protocol

from driftline.engine.flow.context import Failure
from driftline.engine.flow.flow import Function, Vertex
from driftline.engine.labels import Label
from driftline.engine.state.values import as_it_is, copies
from driftline.engine.wire.label_columns import LabelColumn, Labels, numbered, select, times

Values = list[object]
Signs = list[int] | None
Elements = tuple[Labels, Values, Signs]
"""A batch: labels, payloads, and signs (None: all +1) of elements."""

MANY = 16
"""Elements from which on a batch is worth being one of its own."""


class Step(Protocol):
    """Takes batches of elements."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Work on a batch. The three columns are of one length and belong to the step now."""


class Hold(Protocol):
    """Takes the outputs of a node: the barrier."""

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs of a sink; sink FAILURES takes the payloads of failures.

        `packed`: the payloads in the wire format (`engine.wire.codec.pack_rows`), if that is known.
        """


FAILURES = -1
"""The number of the output that failures go to."""


class Failures:
    """Where steps report failures."""

    def __init__(self, barrier: Hold) -> None:
        self.barrier = barrier

    def add(self, label: Label, failure: Failure, sign: int) -> None:
        """Report one failure, or take it back."""
        self.barrier.hold(FAILURES, [label], [failure.payload()], [sign])

    def sort_out(self, labels: Labels, results: Values, signs: Signs) -> list[bool] | None:
        """Report the failures among results. Returns which are none; None if none is one."""
        if not countOf(map(type, results), Failure):
            return None
        for i, result in enumerate(results):
            if isinstance(result, Failure):
                self.add(labels[i], result, 1 if signs is None else signs[i])
        return [not isinstance(result, Failure) for result in results]


class Stateless:
    """Base of map, filter and flat_map: one user function and what comes after."""

    def __init__(
        self,
        vertex: Vertex,
        function: Function,
        after: Step,
        failures: Failures,
        functions_follow: bool = False,
    ) -> None:
        self.name = vertex.name
        self.function = function
        self.after = after
        self.failures = failures
        self.functions_follow = functions_follow
        """Whether functions see the outputs, which may change what others of them share."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        results = called(self.function_of, self.name, values)
        good = self.failures.sort_out(labels, results, signs)
        if good is not None:
            values = list(compress(values, good))
            labels, results, signs = chosen((labels, results, signs), good)
        for out_labels, outputs, out_signs in self.outputs(labels, values, results, signs):
            if self.functions_follow:
                outputs = copies(outputs)
            self.after.push(out_labels, outputs, out_signs)

    def function_of(self, value: object) -> object:
        """What is called for each element."""
        return self.function(value)

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        """The outputs of a batch, in batches."""
        raise NotImplementedError


class Map(Stateless):
    """One output, at the label of its input."""

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        return [(labels, results, signs)] if labels else []


class Filter(Stateless):
    """The same element or nothing."""

    def function_of(self, value: object) -> object:
        return bool(self.function(value))

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        if all(results):
            return [(labels, values, signs)] if labels else []
        return [chosen((labels, values, signs), results)] if any(results) else []


class FlatMap(Stateless):
    """Any number of outputs, each at the label of its input and its number."""

    def function_of(self, value: object) -> object:
        return iterable(self.function(value))

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        return children(labels, results, signs)  # type: ignore[arg-type]


def called(function: Function, name: str, values: Values) -> Values:
    """The result of a function for each value: what it returns, or a Failure.

    The function is called once for each, whatever it does.
    """
    results: Values = []
    add = results.append
    while len(results) < len(values):
        try:
            # Not by `map`, which takes StopIteration out of the function for its own end.
            for value in values[len(results) :] if results else values:
                add(function(value))
        except BaseException as error:
            add(Failure.of(name, None, values[len(results)], error))
    return results


def chosen(batch: Elements, those: Sequence[object]) -> Elements:
    """Those elements of a batch for which this is true."""
    labels, values, signs = batch
    return (
        select(labels, those),
        list(compress(values, those)),
        None if signs is None else list(compress(signs, those)),
    )


def by_time(batch: Elements) -> list[tuple[int, Elements]]:
    """The parts of a batch that are of one time each: runs of equal times, in its order."""
    labels, values, signs = batch
    found = times(labels)
    if len(found) == 1:  # nearly always: a batch of one root
        return [(found[0], batch)]
    parts: list[tuple[int, Elements]] = []
    start = 0
    rows = list(labels)
    for time, run in groupby(found):
        end = start + len(list(run))
        part = rows[start:end], values[start:end], None if signs is None else signs[start:end]
        parts.append((time, part))
        start = end
    return parts


def children(labels: Labels, made: list[Values], signs: Signs) -> list[Elements]:
    """The outputs `made` of the elements with these labels, in batches.

    The outputs of an element that makes many are a batch of their own: what they have in common,
    as the id of a document, is then written once, and is one object again where they arrive.
    """
    every = signs or [1] * len(labels)
    if sum(map(len, made)) >= MANY * len(labels):
        return [
            (LabelColumn(label, range(len(outputs))), outputs, signs and [sign] * len(outputs))
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
    """A vertex with several edges: each appends its number to the path, and has its own copies."""

    def __init__(self, edges: list[Step]) -> None:
        self.edges = edges

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        for number, edge in enumerate(self.edges):
            is_last = number == len(self.edges) - 1
            edge.push(numbered(labels, number), values if is_last else copies(values), signs)


def iterable(outputs: object) -> Values:
    """The outputs that a user function returned or yields, each as it is when it is yielded.

    Raises TypeError for anything else.
    """
    if isinstance(outputs, (list, tuple)):
        return list(outputs)
    if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
        return list(map(as_it_is, outputs))
    raise TypeError(f"the function must return an iterable of outputs, not {outputs!r:.100}")
