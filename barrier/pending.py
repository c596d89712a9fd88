"""Outputs of one time that are not final yet, as batches, in the order in which they came.

Nearly always there is one batch in label order, which then leaves as it is, packed as it came; only
where elements came late, or in several batches, outputs are sorted and tombstones find what they
take back. Payloads that wait are bytes: nobody can change them, and they cost less than objects.
"""

from __future__ import annotations

from itertools import repeat
from operator import itemgetter

from driftline.engine.labels import Label
from driftline.engine.order.steps import FAILURES, Signs, Values
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.codec import exact, unpack_rows
from driftline.engine.wire.label_columns import Labels, in_order

Output = tuple[Label, int, object]
"""(label, sink, payload)"""


class Pending:
    """The outputs of one time."""

    __slots__ = ("batches", "blob", "fails", "taken_back")

    def __init__(self) -> None:
        self.blob: bytes | None = None
        """The outputs, encoded ahead of their release; None: not yet, or not any more."""
        self.fails = False
        """Whether there is a failure among the outputs, perhaps one that is taken back."""
        self.batches: list[tuple[Labels, int, Values | bytes]] = []
        """(labels, sink, payloads, in the wire format where that is known)"""
        self.taken_back: list[Output] = []

    def add(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs of this time, or take them back."""
        self.blob = None
        self.fails |= sink == FAILURES
        if signs is None:
            self.batches.append((labels, sink, packed or values))
            return
        for label, value, sign in zip(labels, values, signs, strict=True):
            if sign > 0:
                self.batches.append(([label], sink, [value]))
            else:
                self.taken_back.append((label, sink, value))

    def _is_in_order(self) -> bool:
        """Whether there is a single batch, which is in label order."""
        return len(self.batches) == 1 and not self.taken_back and in_order(self.batches[0][0])

    def as_it_came(self) -> bytes | None:
        """The blob of a single packed batch in label order; None if there is anything else."""
        if self._is_in_order():
            labels, sink, values = self.batches[0]
            if isinstance(values, bytes):
                return to_blob(labels, sink, (), values)
        return None

    def outputs(self) -> tuple[Labels, int | list[int], Values]:
        """What is left, in label order; one sink number where there is only one."""
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
    """The outputs less those taken back. Equal is not the same for 1, 1.0 and True."""
    gone: dict[tuple[Label, int], list[bytes]] = {}
    for label, sink, value in taken_back:
        gone.setdefault((label, sink), []).append(exact(value))
    kept: list[Output] = []
    for output in outputs:
        candidates = gone.get(output[:2])
        if candidates:
            packed = exact(output[2])
            if packed in candidates:
                candidates.remove(packed)
                continue
        kept.append(output)
    assert not any(gone.values()), "a tombstone for an output that is not there"
    return kept
