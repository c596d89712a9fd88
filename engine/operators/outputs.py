"""Last steps of a chain: `Shuffle` sends elements to other chains, `SinkStep` to the barrier.

The steps pack payloads at once, while these are in the CPU caches. (`Outbound` joins small batches,
which are packed again.) An output that cannot be packed, or does not have the fields that its
operator declares, becomes a failure of the operator that made it, as if the operator's function had
raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.keygroups import Owners
from driftline.engine.labels import Label
from driftline.engine.operators.context import Failure
from driftline.engine.operators.steps import (
    BATCH_ELEMENTS_MIN,
    Elements,
    FailureReporter,
    Fields,
    Function,
    OutputReceiver,
    Signs,
    Values,
    call_each,
    select_elements,
)
from driftline.engine.texts import reraise_interrupt, text_of
from driftline.engine.wire.codec import (
    ATOMS,
    PLAIN,
    Columns,
    encode_rows,
    pack_nested,
    round_trip,
    unpack_rows,
)
from driftline.engine.wire.label_columns import Labels

_EXACT = ATOMS | {tuple, list, dict}
"""Types of payloads in which `itemgetter` finds the same key before and after the wire."""


class OutputEncoder:
    """Encoder of the outputs of one operator, for the end of its chain.

    `name`: the operator's name; `fields`: the fields that it declares; `functions_follow`: whether
    other functions of the chain also take these outputs.
    """

    __slots__ = ("fields", "functions_follow", "keys", "labels", "name")

    def __init__(self, name: str, fields: Fields, functions_follow: bool = False) -> None:
        self.name = name
        self.fields = fields
        self.functions_follow = functions_follow
        self.labels: Labels = []
        """Labels of the elements whose outputs a keyed operator is sending."""
        self.keys: Sequence[object] = ()
        """Keys of these elements, for failures."""

    def arriving(self, label: Label, output: object) -> object:
        """Return an output as a receiver sees it, or a Failure if it cannot leave the chain."""
        try:
            value = round_trip(output)
            problem = fields_mismatch(value, self.fields)
        except (PayloadError, MalformedMessage) as error:
            problem = str(error)
        if problem:
            return Failure.from_output(self.name, self._key_of(label), output, problem)
        return value

    def _key_of(self, label: Label) -> object:
        """Return the key of the element whose output has this label; None if there is no key."""
        for element_label, key in zip(self.labels, self.keys, strict=True):
            if label[: len(element_label)] == element_label:
                return key
        return None

    def pack(self, values: Values) -> bytes:
        """Encode outputs. Raises PayloadError if one of them cannot leave the chain."""
        try:
            columns = encode_rows(values)
            if self.fields is not None:
                self._check_fields(columns, values)
            return pack_nested(columns)
        except BaseException as error:  # comparing a user's class may raise anything
            reraise_interrupt(error)
            raise PayloadError(text_of(error)) from None

    def _check_fields(self, columns: Columns, values: Values) -> None:
        _, mask, item_columns = columns
        if mask == PLAIN or len(item_columns) != len(self.fields or ()):
            for value in values:
                if problem := fields_mismatch(value, self.fields):
                    raise PayloadError(problem)

    def filter_valid(self, batch: Elements, failures: FailureReporter) -> Elements:
        """Return the elements that can leave the chain; report the others as failures.

        The returned payloads are as a receiver sees them, so no method of a user's class is called
        again.
        """
        labels, values, signs = batch
        arriving = list(map(self.arriving, labels, values))
        are_valid = failures.report_failures(labels, arriving, signs)
        arriving_batch = labels, arriving, signs
        return arriving_batch if are_valid is None else select_elements(arriving_batch, are_valid)


def fields_mismatch(output: object, fields: Fields) -> str:
    """Describe how an output differs from its operator's declared fields; "" if it has them."""
    if fields is None or (isinstance(output, (tuple, list)) and len(output) == len(fields)):
        return ""
    has = f"has {len(output)} values" if isinstance(output, (tuple, list)) else "is not a sequence"
    return f"the operator declares {len(fields)} fields, {', '.join(fields)}, but an output {has}"


class SinkStep:
    """Step of a sink: passes outputs to the node's barrier.

    `number`: the sink's number among the sinks; `encoder`: encoder of the operator that made the
    outputs.
    """

    def __init__(
        self,
        number: int,
        barrier: OutputReceiver,
        encoder: OutputEncoder,
        failures: FailureReporter,
    ) -> None:
        self.number = number
        self.barrier = barrier
        self.encoder = encoder
        self.failures = failures

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        try:
            packed = self.encoder.pack(values)
        except PayloadError:
            batch = self.encoder.filter_valid((labels, values, signs), self.failures)
            if batch[0]:
                self.push(*batch)
            return
        self.barrier.add_outputs(self.number, labels, values, signs, packed)


class Outbound:
    """Queue of batches for one port on one node."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[tuple[Elements, bytes]] = []
        """(batch, encoded payloads). For joined batches these are b"": they are encoded later."""

    def add(self, batch: Elements, packed: bytes) -> None:
        """Append a batch, or join it with the last one if the result is small.

        `packed`: the encoded payloads.
        """
        if not batch[0]:
            return
        if self.batches and len(self.batches[-1][0][0]) + len(batch[0]) < BATCH_ELEMENTS_MIN:
            self.batches[-1] = _joined(self.batches[-1][0], batch), b""
        else:
            self.batches.append((batch, packed))

    def take(self) -> list[tuple[Elements, bytes]]:
        """Remove and return all batches."""
        taken, self.batches = self.batches, []
        return taken


def _joined(first: Elements, second: Elements) -> Elements:
    signs: Signs = None
    if first[2] or second[2]:
        signs = (first[2] or [1] * len(first[0])) + (second[2] or [1] * len(second[0]))
    return [*first[0], *second[0]], first[1] + second[1], signs


class Shuffle:
    """Step that sends each element to the node that owns its key.

    `operator`: name of the keyed operator that follows; `fallback_line`: the line that called
    `key_by`, for failures whose traceback has no line outside the engine; `outbounds`: one for each
    node; `encoder`: encoder of the operator that made the elements.

    The key function is called twice per element: by the sender to find the node, and by the
    receiver to find the state. Both calls get the payload as the receiver sees it.
    """

    def __init__(
        self,
        operator: str,
        key: Function,
        fallback_line: str,
        owners: Owners,
        outbounds: list[Outbound],
        failures: FailureReporter,
        encoder: OutputEncoder,
    ) -> None:
        self.name = f"key of {operator}"
        self.key = key
        self.fallback_line = fallback_line
        self.owners = owners
        self.outbounds = outbounds
        self.failures = failures
        self.encoder = encoder

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        batch = labels, values, signs
        try:
            self._send(batch, self._owners(values))
        except PayloadError:
            batch = self.encoder.filter_valid(batch, self.failures)
            batch, owners = self._with_owners(batch)
            if batch[0]:
                self._send(batch, owners)

    def _owners(self, values: Values) -> list[int]:
        """Return the node of each element. Raises PayloadError if one of them may have no key."""
        types = set(map(type, values))
        is_exact = types <= ATOMS or (isinstance(self.key, itemgetter) and types <= _EXACT)
        try:
            arriving = values if is_exact else unpack_rows(self.encoder.pack(values))
            keys = list(map(self.key, arriving))
            if len(keys) < len(values):  # `map` ends if the function raises StopIteration
                raise PayloadError("one of the elements has no key")
            return self.owners.owners_of(keys)
        except PayloadError:
            raise
        except BaseException as error:
            reraise_interrupt(error)
            raise PayloadError("one of the elements has no key") from error

    def _with_owners(self, batch: Elements) -> tuple[Elements, list[int]]:
        """Return the elements that have a key, and their nodes; report the others as failures."""

        def owner(value: object) -> int:
            return self.owners.owners_of([self.key(value)])[0]

        labels, values, signs = batch
        owners = call_each(owner, self.name, list(map(round_trip, values)), self.fallback_line)
        are_valid = self.failures.report_failures(labels, owners, signs)
        if are_valid is not None:
            batch = select_elements(batch, are_valid)
        return batch, [o for o in owners if isinstance(o, int)]

    def _send(self, batch: Elements, owners: list[int]) -> None:
        by_node = [
            batch
            if len(self.outbounds) == 1
            else select_elements(batch, [o == node for o in owners])
            for node in range(len(self.outbounds))
        ]
        # Pack all before adding any: a PayloadError must leave `outbounds` unchanged.
        packed = [self.encoder.pack(values) for _, values, _ in by_node]
        for outbound, part, data in zip(self.outbounds, by_node, packed, strict=True):
            outbound.add(part, data)
