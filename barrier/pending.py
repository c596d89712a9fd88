"""Pending outputs: the outputs of one time that are not final yet, batch by batch.

Nearly always there is one packed batch in label order, and it becomes a blob as it is. Only after
late elements, or if there are several batches, outputs are sorted and matched with tombstones.
Payloads wait as bytes: no function can change them, and they cost less than objects.
"""

from __future__ import annotations

from itertools import repeat
from operator import itemgetter

from driftline.engine.labels import Label
from driftline.engine.operators.steps import FAILURES, Signs, Values
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.codec import exact, pack_rows, unpack_rows
from driftline.engine.wire.label_columns import Labels, in_order

Output = tuple[Label, int, object]
"""(label, sink, payload)"""


class Pending:
    """The pending outputs of one time."""

    __slots__ = ("batches", "blob", "has_failures", "taken_back")

    def __init__(self) -> None:
        self.blob: bytes | None = None
        """The outputs if they were encoded before they are final; None after each change."""
        self.has_failures = False
        """Whether one of the outputs was a failure, even if it was taken back."""
        self.batches: list[tuple[Labels, int, Values | bytes]] = []
        """(labels, sink, payloads: in the wire format if they came packed), in order of arrival."""
        self.taken_back: list[Output] = []
        """The outputs that tombstones have named."""

    def add(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs of this time; tombstones (sign -1) take earlier ones back."""
        self.blob = None
        self.has_failures |= sink == FAILURES
        if signs is None:
            self.batches.append((labels, sink, packed or values))
            return
        for label, value, sign in zip(labels, values, signs, strict=True):
            if sign > 0:
                # A failure has a whole record, which costs less in the wire format.
                waiting = pack_rows([value]) if sink == FAILURES else [value]
                self.batches.append(([label], sink, waiting))
            else:
                self.taken_back.append((label, sink, value))

    def _is_in_order(self) -> bool:
        """Whether there is just one batch, in label order, and no tombstone."""
        return len(self.batches) == 1 and not self.taken_back and in_order(self.batches[0][0])

    def packed_blob(self) -> bytes | None:
        """The blob of the outputs if they are one packed batch in label order, without failures;
        otherwise None."""
        if self._is_in_order() and not self.has_failures:
            labels, sink, values = self.batches[0]
            if isinstance(values, bytes):
                return to_blob(labels, sink, (), values)
        return None

    def outputs(self) -> tuple[Labels, int | list[int], Values]:
        """Labels, sinks (one number if all are the same), and payloads, in label order, without the
        outputs that were taken back."""
        if self._is_in_order():
            labels, sink, values = self.batches[0]
            return labels, sink, _unpacked(values)
        outputs: list[Output] = []
        for labels, sink, values in self.batches:
            outputs += zip(labels, repeat(sink), _unpacked(values))
        if self.taken_back:
            outputs = _without(outputs, self.taken_back)
        outputs.sort(key=itemgetter(0))
        return (
            [output[0] for output in outputs],
            [output[1] for output in outputs],
            [output[2] for output in outputs],
        )


def _unpacked(values: Values | bytes) -> Values:
    return unpack_rows(values) if isinstance(values, bytes) else values


def _without(outputs: list[Output], taken_back: list[Output]) -> list[Output]:
    """The outputs that were not taken back. Compares bytes: 1, 1.0 and True are equal objects."""
    tombstones: dict[tuple[Label, int], list[bytes]] = {}
    for label, sink, value in taken_back:
        tombstones.setdefault((label, sink), []).append(exact(value))
    in_force: list[Output] = []
    for output in outputs:
        candidates = tombstones.get(output[:2])
        if candidates:
            packed = exact(output[2])
            if packed in candidates:
                candidates.remove(packed)
                continue
        in_force.append(output)
    assert not any(tombstones.values()), "a tombstone for an output that did not come"
    return in_force
