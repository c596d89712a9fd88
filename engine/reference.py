"""Reference interpreter: defines a flow's outputs, in simple code.

It runs in one process and processes one element at a time in label order, without network,
speculation or frames. Payloads pass the wire format where they do so on nodes. The tests compare
the engine with the interpreter, so the two share only this format, the form of stored values and
the texts of failures. Users test their flows with it:

    >>> from driftline.engine.flow.flow import Flow
    >>> flow = Flow("shout")
    >>> flow.source("words").map(lambda word: word.upper()).sink()
    >>> [item.value for item in run_reference(flow, [["a", "b"]])]
    ['A', 'B']

A depth-first traversal of the graph visits elements in label order: the labels of two elements of
one root first differ at one operator or fan-out, where the element visited first gets the smaller
number.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from driftline.engine.errors import (
    FlowError,
    FunctionFailed,
    InputError,
    MalformedMessage,
    PayloadError,
)
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import functions_follow
from driftline.engine.keygroups import pack_key
from driftline.engine.labels import Label, child
from driftline.engine.operators.context import Context, Failure, describe_failure
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import FAILURES, Fields
from driftline.engine.sources.record import validate_record
from driftline.engine.sources.source import BadRecord
from driftline.engine.state.plain import Undo, plain_state
from driftline.engine.state.values import copy_outputs, is_plain
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import round_trip, unpack


def run_reference(
    flow: Flow,
    inputs: Mapping[str, Iterable[object]] | Iterable[Iterable[object]],
    *,
    dead_letters: bool = False,
) -> Iterator[Item]:
    """Run a flow over records in memory, one element after the other.

    Args:
        flow: The flow to run.
        inputs: An iterable of records for each source: in the order of the sources, or by name. In
            each, times count from 1.
        dead_letters: Whether a function that raises produces an item with sink -1: operator, key,
            record, error, line, and a text in place of a record that cannot travel; the run
            continues. An input record that cannot travel, or is too large, is skipped.

    Returns:
        The outputs in label order, computed lazily.

    Raises:
        FlowError: If the flow cannot run, or there is not one iterable for each source.
        FunctionFailed: Where a function raises, without `dead_letters`.
        InputError: At a record that cannot travel, or is too large, without `dead_letters`.
    """
    lists = flow.order_inputs(inputs) if isinstance(inputs, Mapping) else list(inputs)
    for payloads in lists:
        if isinstance(payloads, (str, bytes, Mapping)):
            raise FlowError(
                f"give a list of records for each source, not a {type(payloads).__name__}: "
                "run_reference(flow, [[record, ...]])"
            )
    flow.check_inputs(lists)
    inputs_taken = [
        _valid_records(source.name, payloads, dead_letters)
        for source, payloads in zip(flow.sources, lists, strict=True)
    ]
    return interpret(flow, inputs_taken, dead_letters=dead_letters)


def _valid_records(
    source: str, payloads: Iterable[object], dead_letters: bool
) -> Iterator[tuple[int, object]]:
    """Yield the valid records. Raises InputError at an invalid one, unless `dead_letters`."""
    for time, payload in enumerate(payloads, 1):
        record = validate_record(time, payload, f"source {source!r}")
        if not isinstance(record, BadRecord):
            yield record
        elif not dead_letters:
            raise InputError(record.file, time, record.reason)


def interpret(
    flow: Flow,
    inputs: Iterable[Iterable[tuple[int, object]]],
    *,
    dead_letters: bool = False,
) -> Iterator[Item]:
    """Run a flow over (time, payload) pairs for each source. Return the outputs in label order.

    `dead_letters`: yield a failure as an output of the sink FAILURES, instead of raising
    FunctionFailed. Raises FlowError, PayloadError.
    """
    interpreter = _Interpreter(flow.validate())
    roots = heapq.merge(
        *(_roots(front, pairs) for front, pairs in enumerate(inputs)), key=lambda root: root[0]
    )
    for label, payload in roots:
        source = flow.sources[label[1]]
        for item in interpreter.follow(source, label, _Made(round_trip(payload), source.name)):
            if item.sink == FAILURES and not dead_letters:
                assert isinstance(item.value, tuple)
                raise FunctionFailed(describe_failure(item.label, item.value))
            yield item


def _roots(
    front: int, pairs: Iterable[tuple[int, object]]
) -> Iterator[tuple[tuple[int, int], object]]:
    for time, payload in pairs:
        yield (time, front), payload


@dataclass(frozen=True, slots=True)
class _Made:
    """An output, with the operator, key and declared fields of the function that made it."""

    value: object
    maker: str
    key: object = None
    fields: Fields = None

    def failure(self, problem: str) -> Failure:
        """Return the failure that replaces this output."""
        return Failure.from_output(self.maker, self.key, self.value, problem)

    def round_trip(self) -> _Made:
        """Return the output after a shuffle. Raises PayloadError if it cannot travel."""
        try:
            return replace(self, value=round_trip(self.value))
        except MalformedMessage as error:
            raise PayloadError(str(error)) from None

    def leave_chain(self) -> _Made:
        """Return the output after its operator chain. Raises PayloadError if it cannot leave it."""
        after = self.round_trip()
        value, fields = after.value, self.fields
        if fields is None or (isinstance(value, tuple) and len(value) == len(fields)):
            return after
        has = f"has {len(value)} values" if isinstance(value, tuple) else "is not a sequence"
        raise PayloadError(
            f"the operator declares {len(fields)} fields, {', '.join(fields)}, but an output {has}"
        )


class _Interpreter:
    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.undo: Undo = []
        self.states: dict[tuple[int, bytes], list[object]] = {}
        """(vertex, packed key) -> states"""
        self.seen_by_functions = {v.number: functions_follow(flow, v) for v in flow.vertices}

    def follow(self, vertex: Vertex, label: Label, made: _Made) -> Iterator[Item]:
        """Yield all items that result from an output of a vertex."""
        if self.seen_by_functions[vertex.number] and not is_plain(made.value):
            # The next function gets its own copy; after a keyed operator, a copy with the types
            # that the value would have after a shuffle.
            if not vertex.is_keyed:
                made = replace(made, value=copy_outputs([made.value])[0])
            else:
                try:
                    made = made.round_trip()
                except PayloadError as error:
                    yield Item(label, FAILURES, made.failure(str(error)).payload())
                    return
        edges = self.flow.successors(vertex.number)
        # A branch may change its argument, so each branch gets its own copy.
        others = [replace(made, value=copy_outputs([made.value])[0]) for _ in edges[1:]]
        for number, (after, own) in enumerate(zip(edges, [*others, made], strict=True)):
            yield from self.visit(after, label if len(edges) == 1 else child(label, number), own)

    def visit(self, vertex: Vertex, label: Label, made: _Made) -> Iterator[Item]:
        """Yield all items that result from an element that arrives at a vertex."""
        if vertex.is_keyed or vertex.operator.is_sink:
            try:
                made = made.leave_chain()
            except PayloadError as error:
                yield Item(label, FAILURES, made.failure(str(error)).payload())
                return
        if vertex.operator.is_sink:
            yield Item(label, self.flow.sinks.index(vertex), made.value)
            return
        try:
            key = None if vertex.key is None else self.key_of(vertex, round_trip(made.value))
        except _Failed as failed:
            yield Item(label, FAILURES, failed.failure.payload())
            return
        try:
            outputs = self.apply(vertex, label, key, made.value)
        except BaseException as error:
            for take_back in reversed(self.undo):
                take_back()
            failure = Failure.from_exception(vertex.name, key, made.value, error, vertex.line)
            yield Item(label, FAILURES, failure.payload())
            return
        finally:
            self.undo.clear()
        for number, output in enumerate(outputs):
            after = child(label, number) if vertex.operator.emits_many else label
            if not vertex.operator.passes_on:
                made = _Made(output, vertex.name, key, vertex.fields)
            yield from self.follow(vertex, after, made)

    def key_of(self, vertex: Vertex, value: object) -> object:
        """Return the key of an element after a shuffle. Raises _Failed."""
        assert vertex.key is not None
        try:
            return unpack(pack_key(vertex.key(value)))
        except BaseException as error:
            name = f"key of {vertex.name}"
            raise _Failed(
                Failure.from_exception(name, None, value, error, vertex.key_line)
            ) from None

    def apply(self, vertex: Vertex, label: Label, key: object, value: object) -> list[object]:
        """Return the outputs of an operator for one element. Raises its function's exceptions."""
        states = self.states.setdefault((vertex.number, pack_key(key)), [])
        if not states:
            states += [plain_state(declared, self.undo) for declared in vertex.states]
        return vertex.operator.apply_reference(vertex, Context(label, key), value, states)


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure
