"""The ends of a chain: `Shuffle` hands elements to other chains, `SinkStep` outputs to the barrier.

Payloads are packed here, once, while they are in the processor's caches. An output that cannot be
packed, or that has not the fields that its operator declares, becomes a failure of the function
that made it (the *maker*), as if the function had raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.keygroups import Owners
from driftline.engine.labels import Label
from driftline.engine.operators.context import Failure
from driftline.engine.operators.steps import (
    MANY,
    Elements,
    Failures,
    Fields,
    Function,
    OutputReceiver,
    Signs,
    Values,
    called,
    chosen,
)
from driftline.engine.texts import let_through, text_of
from driftline.engine.wire.codec import (
    ATOMS,
    PLAIN,
    Columns,
    encode_rows,
    pack_nested,
    travelled,
    unpack_rows,
)
from driftline.engine.wire.label_columns import Labels

_EXACT = ATOMS | {tuple, list, dict}


class OutputEncoder:
    """The operator whose outputs reach an end of a chain unchanged.

    `functions_follow`: whether functions of the same chain see its outputs, too.
    """

    __slots__ = ("fields", "functions_follow", "keys", "labels", "name")

    def __init__(self, name: str, fields: Fields, functions_follow: bool = False) -> None:
        self.name = name
        self.fields = fields
        self.functions_follow = functions_follow
        self.labels: Labels = []
        """The labels of the elements that the operator has just applied, if it is a keyed one."""
        self.keys: Sequence[object] = ()

    def arriving(self, label: Label, output: object) -> object:
        """An output as it arrives elsewhere, or a Failure if it cannot leave the chain."""
        try:
            value = travelled(output)
            problem = not_of_fields(value, self.fields)
        except (PayloadError, MalformedMessage) as error:
            problem = str(error)
        if problem:
            return Failure.of_output(self.name, self._key_of(label), output, problem)
        return value

    def _key_of(self, label: Label) -> object:
        for made_of, key in zip(self.labels, self.keys, strict=True):
            if label[: len(made_of)] == made_of:
                return key
        return None

    def pack(self, values: Values) -> bytes:
        """Outputs in the wire format. Raises PayloadError if one of them cannot leave the chain."""
        try:
            columns = encode_rows(values)
            if self.fields is not None:
                self._check_fields(columns, values)
            return pack_nested(columns)
        except BaseException as error:  # a user's class may raise anything when it is compared
            let_through(error)
            raise PayloadError(text_of(error)) from None

    def _check_fields(self, columns: Columns, values: Values) -> None:
        _, mask, found = columns
        if mask == PLAIN or len(found) != len(self.fields or ()):
            for value in values:
                if problem := not_of_fields(value, self.fields):
                    raise PayloadError(problem)

    def without_refused(self, batch: Elements, failures: Failures) -> Elements:
        """The elements that can leave the chain, as they arrive elsewhere: so no method of a user's
        class is called once more. The others are reported as failures.
        """
        labels, values, signs = batch
        found = list(map(self.arriving, labels, values))
        good = failures.sort_out(labels, found, signs)
        found_batch = labels, found, signs
        return found_batch if good is None else chosen(found_batch, good)


def not_of_fields(output: object, fields: Fields) -> str:
    """How an output differs from the fields that its operator declares; empty if it has them."""
    if fields is None or (isinstance(output, (tuple, list)) and len(output) == len(fields)):
        return ""
    has = f"has {len(output)} values" if isinstance(output, (tuple, list)) else "is no sequence"
    return f"the operator declares {len(fields)} fields, {', '.join(fields)}, but an output {has}"


class SinkStep:
    """A sink of the flow: hands outputs to the node's barrier."""

    def __init__(
        self, number: int, barrier: OutputReceiver, maker: OutputEncoder, failures: Failures
    ) -> None:
        self.number = number
        self.barrier = barrier
        self.maker = maker
        self.failures = failures

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        try:
            packed = self.maker.pack(values)
        except PayloadError:
            batch = self.maker.without_refused((labels, values, signs), self.failures)
            if batch[0]:
                self.push(*batch)
            return
        self.barrier.hold(self.number, labels, values, signs, packed)


class Outbound:
    """Batches waiting to leave this node for one port on one node."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[tuple[Elements, bytes]] = []
        """(batch, its payloads in the wire format, or nothing for small batches)"""

    def add(self, batch: Elements, packed: bytes) -> None:
        """Append a batch; small batches are joined. `packed`: its payloads in the wire format."""
        if self.batches and len(self.batches[-1][0][0]) + len(batch[0]) < MANY:
            self.batches[-1] = _joined(self.batches[-1][0], batch), b""
        elif batch[0]:
            self.batches.append((batch, packed))

    def take(self) -> list[tuple[Elements, bytes]]:
        """Remove and return all batches."""
        taken, self.batches = self.batches, []
        return taken


def _joined(one: Elements, other: Elements) -> Elements:
    signs: Signs = None
    if one[2] or other[2]:
        signs = (one[2] or [1] * len(one[0])) + (other[2] or [1] * len(other[0]))
    return [*one[0], *other[0]], one[1] + other[1], signs


class Shuffle:
    """Sends each element to the node that owns its key.

    `operator`: the name of the keyed operator behind it; `made_at`: the line that has made its key.

    The key function is called twice for an element: here, to find the node, and there, to find the
    state. Both calls get the payload in the form in which it arrives there.
    """

    def __init__(
        self,
        operator: str,
        key: Function,
        made_at: str,
        owners: Owners,
        outbounds: list[Outbound],
        failures: Failures,
        maker: OutputEncoder,
    ) -> None:
        self.name = f"key of {operator}"
        self.key = key
        self.made_at = made_at
        self.owners = owners
        self.outbounds = outbounds
        self.failures = failures
        self.maker = maker

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        batch = labels, values, signs
        try:
            self._send(batch, self._owners(values))
        except PayloadError:
            batch = self.maker.without_refused(batch, self.failures)
            batch, owners = self._with_owners(batch)
            if batch[0]:
                self._send(batch, owners)

    def _owners(self, values: Values) -> list[int]:
        """The node of each element. Raises PayloadError if one of them may have no key."""
        kinds = set(map(type, values))
        direct = kinds <= ATOMS or (isinstance(self.key, itemgetter) and kinds <= _EXACT)
        try:
            arriving = values if direct else unpack_rows(self.maker.pack(values))
            keys = list(map(self.key, arriving))
            if len(keys) < len(values):  # `map` ends at a StopIteration of the function
                raise PayloadError("one of the elements has no key")
            return self.owners.of(keys)
        except PayloadError:
            raise
        except BaseException as error:
            let_through(error)
            raise PayloadError("one of the elements has no key") from error

    def _with_owners(self, batch: Elements) -> tuple[Elements, list[int]]:
        """The elements that have a key, and their nodes; the others are reported as failures."""

        def owner(value: object) -> int:
            return self.owners.of([self.key(value)])[0]

        labels, values, signs = batch
        found = called(owner, self.name, list(map(travelled, values)), self.made_at)
        good = self.failures.sort_out(labels, found, signs)
        if good is not None:
            batch = chosen(batch, good)
        return batch, [o for o in found if isinstance(o, int)]

    def _send(self, batch: Elements, owners: list[int]) -> None:
        by_node = [
            batch if len(self.outbounds) == 1 else chosen(batch, [o == node for o in owners])
            for node in range(len(self.outbounds))
        ]
        # All are packed before one is added: a PayloadError must leave `outbounds` as they were.
        packed = [self.maker.pack(values) for _, values, _ in by_node]
        for outbound, own, data in zip(self.outbounds, by_node, packed, strict=True):
            outbound.add(own, data)
