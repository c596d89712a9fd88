"""Iteration: a keyed operator whose function may send messages back to the operator, to any key.

An output `Again(message)` returns to the operator, in the next *round*; other outputs leave it. The
label of a message contains the round. So the operator applies all messages of a round before those
of the next round, and all rounds of an element before the next element.

Example: halve each number until it is odd:

    >>> from driftline.engine.flow.flow import Flow
    >>> from driftline.engine.reference import run_reference
    >>> def halve(context, number):
    ...     return [number] if number % 2 else [Again(number // 2)]
    >>> flow = Flow("odd")
    >>> flow.source("numbers").key_by(lambda number: number).iterate(halve).sink()
    >>> [item.value for item in run_reference(flow, [[12, 7]])]
    [3, 7]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from msgspec import Struct

from driftline.engine.errors import FlowError
from driftline.engine.labels import ROUND_MARK_BASE, ROUNDS_MAX, Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import Chain, KeyedOperator, Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.steps import (
    Signs,
    Step,
    Values,
    collect_outputs,
    select_elements,
)
from driftline.engine.wire.label_columns import Labels

T = TypeVar("T")


class Again(Struct, Generic[T], frozen=True):
    """Output of an `iterate` function that returns to the operator.

    `value`: the message, which the operator gets like an element, with the message's key.
    """

    value: T


Tagged = tuple[bool, object]
"""(whether the output returns to the operator, the output)"""


def next_round(label: Label, vertex: int) -> Label:
    """Return the label of a message as an input of the iterating operator, in the next round.

    `label`: the label of the message as an output of the operator; `vertex`: the operator's number.
    The result ends in a mark, which contains the round (see `ROUND_MARK_BASE`), and a number for
    the path of messages that led to this one. In round 1, it is the number of the output; in later
    rounds, a hash, so that labels do not grow. Two hashes are equal with probability 2^-62.
    """
    *prefix, mark, path, number = (0, *label)
    if mark // ROUNDS_MAX != ROUND_MARK_BASE + vertex:
        return (*label[:-1], (ROUND_MARK_BASE + vertex) * ROUNDS_MAX + 1, number)
    digest = blake2b(b"%d %d" % (path, number), digest_size=8).digest()
    return (*prefix[1:], mark + 1, int.from_bytes(digest, "big") >> 2)


def round_of(label: Label, vertex: int) -> int:
    """Return the round of an element at an iterating operator; 0 if it is not a message."""
    mark = label[-2]
    return mark % ROUNDS_MAX if mark // ROUNDS_MAX == ROUND_MARK_BASE + vertex else 0


def in_rounds(
    function: Callable[..., Iterable[object]], vertex: int, rounds: int
) -> Callable[..., list[Tagged]]:
    """Return a function that calls a user's function and tags its outputs (see `Tagged`).

    The returned function raises RuntimeError for a message that would begin round `rounds` + 1.
    `vertex`: number of the operator.
    """

    def tagged(context: Context, value: object, *states: object) -> list[Tagged]:
        outputs = [
            (True, output.value) if isinstance(output, Again) else (False, output)
            for output in collect_outputs(function(context, value, *states))
        ]
        if any(returns for returns, _ in outputs) and round_of(context.label, vertex) >= rounds:
            raise RuntimeError(
                f"the iteration has not ended after {rounds} rounds: let it send fewer messages, "
                "or give iterate a larger max_rounds"
            )
        return outputs

    return tagged


@dataclass(frozen=True)
class Iterate(KeyedOperator):
    """Operator with any number of outputs per element, some of which return to it.

    `rounds`: the maximum number of rounds.
    """

    rounds: int

    kind = "iterate"
    takes_function = True
    emits_many = True
    loops = True

    def __post_init__(self) -> None:
        if type(self.rounds) is not int or not 1 <= self.rounds < ROUNDS_MAX:
            raise FlowError(
                f"iterate: max_rounds is {self.rounds!r}; give an int from 1 to {ROUNDS_MAX - 1}"
            )

    def parameters(self) -> object:
        return (self.rounds,)

    def make_step(self, vertex: Vertex, chain: Chain, encoder: OutputEncoder) -> Step:
        encoder = OutputEncoder(vertex.name, vertex.fields, chain.functions_follow(vertex))
        again = chain.shuffle_step(vertex, OutputEncoder(vertex.name, None))
        round_step = RoundStep(vertex.number, chain.next_step(vertex, encoder), again)
        return chain.make_keyed_step(vertex, round_step, chain.failures, encoder)

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[Any]
    ) -> list[object]:
        assert vertex.function is not None
        return collect_outputs(vertex.function(context, value, *states))


class RoundStep:
    """Step after an iterating operator: sends messages back to it, other outputs to the next step.

    `vertex`: number of the operator; `again`: the shuffle in front of the operator.
    """

    def __init__(self, vertex: int, next_step: Step, again: Step) -> None:
        self.vertex = vertex
        self.next_step = next_step
        self.again = again

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        tagged: list[Tagged] = values  # type: ignore[assignment]
        return_flags, outputs = [returns for returns, _ in tagged], [output for _, output in tagged]
        if any(return_flags):
            output_labels, messages, message_signs = select_elements(
                (labels, outputs, signs), return_flags
            )
            message_labels = [next_round(label, self.vertex) for label in output_labels]
            self.again.push(message_labels, messages, message_signs)
        if not all(return_flags):
            leave_flags = [not returns for returns in return_flags]
            self.next_step.push(*select_elements((labels, outputs, signs), leave_flags))
