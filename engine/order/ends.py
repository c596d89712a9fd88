"""The ends of a chain: what leaves it for other chains, or as an output.

Here payloads are packed, once, while they are in the processor's caches. So it is here that an
output is found out which cannot travel, or does not have the fields that were declared: it becomes
a failure of the function that made it, the *maker*, as if that had raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.flow.context import Failure
from driftline.engine.flow.flow import Fields
from driftline.engine.flow.plan import Port
from driftline.engine.keygroups import Owners
from driftline.engine.labels import Label
from driftline.engine.order.steps import (
    MANY,
    Elements,
    Failures,
    Hold,
    Signs,
    Values,
    called,
    chosen,
)
from driftline.engine.state.values import ATOMS
from driftline.engine.wire.codec import (
    PLAIN,
    Columns,
    encode_rows,
    pack_nested,
    travelled,
    unpack_rows,
)
from driftline.engine.wire.label_columns import Labels

_EXACT = ATOMS | {tuple, list, dict}


class Maker:
    """A function whose outputs reach the end of a chain without another function's work.

    `functions_follow`: whether functions come between it and the ends.
    """

    __slots__ = ("fields", "functions_follow", "keys", "labels", "name")

    def __init__(self, name: str, fields: Fields, functions_follow: bool = False) -> None:
        self.name = name
        self.fields = fields
        self.functions_follow = functions_follow
        self.labels: Labels = []
        """Of the elements that a keyed operator has just applied."""
        self.keys: Sequence[object] = ()

    def refuses(self, output: object) -> str:
        """What is wrong with an output; empty if nothing is."""
        try:
            travelled(output)
        except (PayloadError, MalformedMessage) as error:
            return str(error)
        return not_of_fields(output, self.fields)

    def failure(self, label: Label, output: object, problem: str) -> Failure:
        """The failure that an output is instead."""
        return Failure.of_output(self.name, self._key_of(label), output, problem)

    def _key_of(self, label: Label) -> object:
        for made_of, key in zip(self.labels, self.keys, strict=True):
            if label[: len(made_of)] == made_of:
                return key
        return None

    def pack(self, values: Values) -> bytes:
        """Outputs in the wire format. Raises PayloadError if one is refused."""
        try:
            columns = encode_rows(values)
            if self.fields is not None:
                self._check_fields(columns, values)
            return pack_nested(columns)
        except Exception as error:  # also what comparing strange objects raises
            raise PayloadError(str(error)) from None

    def _check_fields(self, columns: Columns, values: Values) -> None:
        _, mask, found = columns
        if mask == PLAIN or len(found) != len(self.fields or ()):
            for value in values:
                if problem := not_of_fields(value, self.fields):
                    raise PayloadError(problem)

    def without_refused(self, batch: Elements, failures: Failures) -> Elements:
        """The elements that are not refused; the others become failures."""
        labels, values, signs = batch
        found = list(map(self._or_failure, labels, values))
        good = failures.sort_out(labels, found, signs)
        return batch if good is None else chosen(batch, good)

    def _or_failure(self, label: Label, output: object) -> object:
        problem = self.refuses(output)
        return self.failure(label, output, problem) if problem else output


def not_of_fields(output: object, fields: Fields) -> str:
    """In how far an output does not have the fields that its operator declares."""
    if fields is None or (isinstance(output, (tuple, list)) and len(output) == len(fields)):
        return ""
    has = f"has {len(output)} values" if isinstance(output, (tuple, list)) else "is no sequence"
    return f"the operator declares {len(fields)} fields, {', '.join(fields)}, but an output {has}"


class Sink:
    """The end of the flow on this node: outputs go to the barrier."""

    def __init__(self, number: int, barrier: Hold, maker: Maker, failures: Failures) -> None:
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
        """Each with its payloads in the wire format, if it is worth keeping them."""

    def add(self, batch: Elements, packed: bytes) -> None:
        """Append a batch; small ones are joined."""
        if self.batches and len(self.batches[-1][0][0]) + len(batch[0]) < MANY:
            self.batches[-1] = _joined(self.batches[-1][0], batch), b""
        elif batch[0]:
            self.batches.append((batch, packed))

    def take(self) -> list[tuple[Elements, bytes]]:
        """Everything that waits; nothing waits any more."""
        taken, self.batches = self.batches, []
        return taken


def _joined(one: Elements, other: Elements) -> Elements:
    signs: Signs = None
    if one[2] or other[2]:
        signs = (one[2] or [1] * len(one[0])) + (other[2] or [1] * len(other[0]))
    return [*one[0], *other[0]], one[1] + other[1], signs


class Shuffle:
    """Sends each element to the node that owns its key.

    The key is that of the element as it arrives: its function is called here for the way, and
    there for the state, and has to see the same.
    """

    def __init__(
        self,
        port: Port,
        owners: Owners,
        outbounds: list[Outbound],
        failures: Failures,
        maker: Maker,
    ) -> None:
        assert port.vertex.key is not None
        self.name = f"key of {port.vertex.name}"
        self.key = port.vertex.key
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
        """The owner of each element. Raises PayloadError if that cannot be told of all at once."""
        kinds = set(map(type, values))
        direct = kinds <= ATOMS or (isinstance(self.key, itemgetter) and kinds <= _EXACT)
        try:
            arriving = values if direct else unpack_rows(self.maker.pack(values))
            keys = list(map(self.key, arriving))
            if len(keys) < len(values):  # `map` takes StopIteration for its own end
                raise PayloadError("one of the elements has no key")
            return self.owners.of(keys)
        except (PayloadError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise PayloadError("one of the elements has no key") from error

    def _with_owners(self, batch: Elements) -> tuple[Elements, list[int]]:
        """The elements that have a key, with their owners; the others become failures."""

        def owner(value: object) -> int:
            return self.owners.of([self.key(value)])[0]

        labels, values, signs = batch
        found = called(owner, self.name, list(map(travelled, values)))
        good = self.failures.sort_out(labels, found, signs)
        if good is not None:
            batch = chosen(batch, good)
        return batch, [o for o in found if isinstance(o, int)]

    def _send(self, batch: Elements, owners: list[int]) -> None:
        parts = [
            batch if len(self.outbounds) == 1 else chosen(batch, [o == node for o in owners])
            for node in range(len(self.outbounds))
        ]
        packed = [self.maker.pack(part[1]) for part in parts]  # of all, before any is on its way
        for outbound, part, data in zip(self.outbounds, parts, packed, strict=True):
            outbound.add(part, data)
