"""The reference interpreter: what a flow's output must be, in obvious lines.

One process, one element at a time in label order, no network, no speculation, no frames. It is
the oracle of every test, and a user's way to test a flow:

    >>> from engine.flow import Flow
    >>> flow = Flow("shout")
    >>> flow.source("words").map(lambda word: word.upper()).sink()
    >>> [item.value for item in run_reference(flow, [["a", "b"]])]
    ['A', 'B']

Depth first through the graph *is* label order: two elements of one root part at one operator or
fan-out, where the one that is visited first gets the smaller number.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.codec import travelled
from engine.context import Context, Failure, describe
from engine.errors import FunctionFailed
from engine.flow import Flow, Vertex
from engine.labels import Label, child
from engine.operators import FAILURES, iterable
from engine.state import State, StateTable, StrictJournal, undo


@dataclass(frozen=True, slots=True)
class Item:
    """An output: its label, the number of its sink (FAILURES for a dead letter), its payload."""

    label: Label
    sink: int
    value: object


def run_reference(
    flow: Flow,
    inputs: Iterable[Iterable[object]],
    *,
    dead_letters: bool = False,
) -> Iterator[Item]:
    """Run a flow over one list of payloads for each source, with times 1, 2, ..."""
    return interpret(
        flow, [enumerate(payloads, 1) for payloads in inputs], dead_letters=dead_letters
    )


def interpret(
    flow: Flow,
    inputs: Iterable[Iterable[tuple[int, object]]],
    *,
    dead_letters: bool = False,
) -> Iterator[Item]:
    """Run a flow over (time, payload) pairs for each source; outputs come in label order.

    Raises FunctionFailed where a function raises, unless failures are wanted as `dead_letters`.
    """
    interpreter = _Interpreter(flow.validate())
    roots = heapq.merge(
        *(_roots(front, pairs) for front, pairs in enumerate(inputs)), key=lambda root: root[0]
    )
    for label, payload in roots:
        source = flow.sources[label[1]]
        for item in interpreter.follow(source, label, travelled(payload)):
            if item.sink == FAILURES and not dead_letters:
                assert isinstance(item.value, tuple)
                raise FunctionFailed(describe(item.label, item.value))
            yield item


def _roots(
    front: int, pairs: Iterable[tuple[int, object]]
) -> Iterator[tuple[tuple[int, int], object]]:
    for time, payload in pairs:
        yield (time, front), payload


class _Interpreter:
    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.journal = StrictJournal()
        self.tables = {
            v.number: StateTable(v.states, self.journal) for v in flow.vertices if v.keyed
        }

    def follow(self, vertex: Vertex, label: Label, value: object) -> Iterator[Item]:
        """Everything that an output of a vertex leads to."""
        edges = self.flow.outputs_of(vertex.number)
        for number, after in enumerate(edges):
            yield from self.visit(after, label if len(edges) == 1 else child(label, number), value)

    def visit(self, vertex: Vertex, label: Label, value: object) -> Iterator[Item]:
        """Everything that an element at the entry of a vertex leads to."""
        if vertex.kind == "sink":
            yield Item(label, self.flow.sinks.index(vertex), value)
            return
        outputs = self.apply(vertex, label, value)
        if isinstance(outputs, Failure):
            yield Item(label, FAILURES, outputs.payload())
            return
        for number, output in enumerate(outputs):
            many = vertex.kind in ("flat_map", "process")
            yield from self.follow(vertex, child(label, number) if many else label, output)

    def apply(self, vertex: Vertex, label: Label, value: object) -> list[object] | Failure:
        """The outputs of one operator for one element."""
        if vertex.kind == "union":
            return [value]
        assert vertex.function is not None
        key: object = None
        states: tuple[State, ...] = ()
        name = vertex.name
        try:
            if vertex.key is not None:
                name = f"key of {vertex.name}"
                key = vertex.key(value)
                states = self.tables[vertex.number].states(key)
                name = vertex.name
                value = travelled(value)
            if vertex.kind == "map":
                return [vertex.function(value)]
            if vertex.kind == "filter":
                return [value] if vertex.function(value) else []
            if vertex.kind == "flat_map":
                return iterable(vertex.function(value))
            if vertex.kind == "scan":
                return [vertex.function(value, *states)]
            return iterable(vertex.function(Context(label, key), value, *states))
        except Exception as error:
            undo(self.journal)
            return Failure.of(name, key, value, error)
        finally:
            self.journal.clear()
