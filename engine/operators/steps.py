"""Steps: the operators of a chain on a node; each pushes its outputs into the next.

A step takes a batch of elements, as columns: labels, payloads, and signs (+1, or -1 for a
tombstone; None if all are +1). It applies its function to each payload in one tight loop; all other
work is done once per batch.

If a user function raises, a `Failure` with the element's label goes to the barrier. Failures are
outputs, so their order is the same in every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress, groupby
from operator import countOf
from typing import Protocol, cast

from driftline.engine.event_time import output_label
from driftline.engine.labels import Label
from driftline.engine.operators.context import Failure
from driftline.engine.state.values import copy_if_mutable, copy_outputs
from driftline.engine.wire.codec import is_a
from driftline.engine.wire.label_columns import LabelColumn, Labels, child_labels, select, times

Function = Callable[..., object]
"""A user function."""
Fields = tuple[str, ...] | None
"""Names of the items of a stream's payloads, if these are tuples with names."""
Values = list[object]
"""Payloads, or results of a function, of a batch."""
Signs = list[int] | None
"""+1, or -1 for a tombstone, per element; None: all are +1."""
Elements = tuple[Labels, Values, Signs]
"""A batch: labels, payloads, and signs (None: all are +1)."""

BATCH_ELEMENTS_MIN = 16
"""A batch with fewer elements is small: senders and input queues join small batches."""


class Step(Protocol):
    """Receiver of batches of elements."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Take a batch. The columns have equal lengths; the step takes ownership of them."""


class OutputReceiver(Protocol):
    """Interface of the barrier for operators: it takes the outputs of a node."""

    def add_outputs(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs of a sink; sink FAILURES takes the payloads of failures.

        `packed`: the payloads in the wire format (`engine.wire.codec.pack_rows`), if already
        encoded.
        """


FAILURES = -1
"""Number of the sink for failures."""


class FailureReporter:
    """Adapter that passes failures of user functions to the barrier, as outputs."""

    def __init__(self, barrier: OutputReceiver) -> None:
        self.barrier = barrier

    def add(self, label: Label, failure: Failure, sign: int) -> None:
        """Report a failure (sign +1), or retract one (sign -1)."""
        self.barrier.add_outputs(FAILURES, [label], [failure.payload()], [sign])

    def report_failures(self, labels: Labels, results: Values, signs: Signs) -> list[bool] | None:
        """Report the failures among results.

        Returns whether each result is an output, or None if there is no failure.
        """
        if not countOf(map(type, results), Failure):
            return None
        for i, result in enumerate(results):
            if is_a(result, Failure):
                self.add(labels[i], result, 1 if signs is None else signs[i])
        return [not is_a(result, Failure) for result in results]


def call_each(function: Function, name: str, values: Values, fallback_line: str) -> Values:
    """Call a function once per value; return its results, or a Failure where it raises.

    `name`: of the operator or key function, for failures; `fallback_line`: the line of user code
    that added it, for failures whose traceback has no line outside the engine.
    """
    results: Values = []
    add = results.append
    while len(results) < len(values):
        try:
            # Not `map`, which ends if the function raises StopIteration.
            for value in values[len(results) :] if results else values:
                add(function(value))
        except BaseException as error:
            add(Failure.from_exception(name, None, values[len(results)], error, fallback_line))
    return results


def select_elements(batch: Elements, selectors: Sequence[object]) -> Elements:
    """Return the elements whose selector is true. Precondition: one selector per element."""
    labels, values, signs = batch
    return (
        select(labels, selectors),
        list(compress(values, selectors)),
        None if signs is None else list(compress(signs, selectors)),
    )


def split_by_time(batch: Elements) -> list[tuple[int, Elements]]:
    """Split a batch wherever the time changes; return (time, part) pairs in batch order."""
    labels, values, signs = batch
    row_times = times(labels)
    if len(row_times) == 1:  # the usual case: all elements have the same time
        return [(row_times[0], batch)]
    batches: list[tuple[int, Elements]] = []
    start = 0
    rows = list(labels)
    for time, same_time in groupby(row_times):
        end = start + len(list(same_time))
        part = rows[start:end], values[start:end], None if signs is None else signs[start:end]
        batches.append((time, part))
        start = end
    return batches


def children(labels: Labels, outputs_of: list[Values], signs: Signs) -> list[Elements]:
    """Return the outputs of elements as batches. `outputs_of`: the outputs of each element.

    If elements have at least `BATCH_ELEMENTS_MIN` outputs on average, the outputs of each element
    form a batch; otherwise all outputs form one. In a batch of one element, a value that all
    outputs share, such as the id of a document, is encoded once, and is one object at the receiver.
    """
    each_sign = signs or [1] * len(labels)
    if sum(map(len, outputs_of)) >= BATCH_ELEMENTS_MIN * len(labels):
        return [
            (LabelColumn(label, range(len(outputs))), outputs, signs and [sign] * len(outputs))
            for label, outputs, sign in zip(labels, outputs_of, each_sign, strict=True)
            if outputs
        ]
    out_labels: list[Label] = []
    for label, outputs in zip(labels, outputs_of, strict=True):
        out_labels += [(*label, i) for i in range(len(outputs))]
    if not out_labels:
        return []
    if signs:
        signs = [s for s, outputs in zip(signs, outputs_of, strict=True) for _ in outputs]
    return [(out_labels, list(chain.from_iterable(outputs_of)), signs)]


def with_event_times(batch: Elements) -> Elements:
    """Return the result of `children`, if each output is a pair (event time, output)."""
    labels, values, signs = batch
    pairs = cast(list[tuple[int, object]], values)
    labels = [
        output_label(label[:-1], event_time, label[-1])
        for label, (event_time, _) in zip(labels, pairs, strict=True)
    ]
    return labels, [output for _, output in pairs], signs


class FanOut:
    """Step that feeds several edges: copies the values, and appends the edge's number to labels."""

    def __init__(self, edges: list[Step]) -> None:
        self.edges = edges

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        for number, edge in enumerate(self.edges):
            is_last = number == len(self.edges) - 1
            edge.push(
                child_labels(labels, number), values if is_last else copy_outputs(values), signs
            )


def collect_outputs(outputs: object) -> Values:
    """Return the outputs that a user function returned or yields, as a list.

    A mutable output is copied when it is yielded, as the function may change it later. Raises
    TypeError if `outputs` is not iterable. Also raises it for a str, bytes or a mapping, which is
    probably a single output.
    """
    if isinstance(outputs, (list, tuple)):
        return list(outputs)
    if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes, Mapping)):
        return list(map(copy_if_mutable, outputs))
    raise TypeError(
        f"the function must return an iterable of outputs, such as a list, not {outputs!r:.100}"
    )
