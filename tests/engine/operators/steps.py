"""What stands around a step under test: something that collects what it pushes and holds."""

from collections import defaultdict

from driftline.engine.labels import Label
from driftline.engine.operators.steps import FAILURES, Failures, Signs, Values
from driftline.engine.wire.codec import pack
from driftline.engine.wire.label_columns import Labels

Output = tuple[Label, int, object]
"""(label, sink, payload); sink FAILURES for a failure"""


class Collected:
    """The end of a chain of steps, and its barrier: keeps everything in order of arrival."""

    def __init__(self) -> None:
        self.pushed: list[tuple[Label, int, object, int]] = []
        """(label, sink, payload, sign)"""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        self.hold(0, labels, values, signs)

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        signs = [1] * len(labels) if signs is None else signs
        self.pushed += [
            (label, sink, value, sign)
            for label, value, sign in zip(labels, values, signs, strict=True)
        ]

    @property
    def failures(self) -> Failures:
        """Where steps report failures."""
        return Failures(self)

    @property
    def tombstones(self) -> int:
        """How many outputs were taken back."""
        return sum(sign < 0 for _, _, _, sign in self.pushed)

    def net(self) -> list[Output]:
        """What is left, in label order; a tombstone must follow the element it takes back."""
        there: dict[tuple[Label, int], list[object]] = defaultdict(list)
        for label, sink, value, sign in self.pushed:
            here = there[label, sink]
            if sign > 0:
                here.append(value)
            else:
                del here[[pack(v) for v in here].index(pack(value))]
        return [
            (label, sink, value)
            for (label, sink), values in sorted(there.items())
            for value in values
        ]

    def failed(self) -> list[tuple[Label, object]]:
        """(label, error) of the failures that are left."""
        found = []
        for label, sink, value in self.net():
            if sink == FAILURES:
                assert isinstance(value, tuple)
                found.append((label, value[3]))
        return found
