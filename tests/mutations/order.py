"""Label order without a safeguard: late elements, their effects, and when effects are final."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

import driftline.engine.operators.speculative
from driftline.deploy.node.unordered import Alignment
from driftline.engine.labels import INFINITY
from driftline.engine.operators.keyed import Keyed
from driftline.engine.operators.speculative import Speculative
from driftline.engine.operators.steps import Signs, Values
from driftline.engine.wire.label_columns import Labels


def nothing_is_undone() -> AbstractContextManager[object]:
    """Apply late elements to the state after later elements."""
    return patch.object(driftline.engine.operators.speculative, "undo", lambda changes: None)


def tombstones_are_not_sent() -> AbstractContextManager[object]:
    """Do not retract outputs that are no longer valid."""
    send = Keyed.send_outputs

    def mutated(
        self: Keyed, labels: Labels, keys: list[object], outputs: Values, signs: Signs
    ) -> None:
        if signs is not None:
            kept = [i for i, sign in enumerate(signs) if sign > 0]
            labels, outputs = [labels[i] for i in kept], [outputs[i] for i in kept]
            keys, signs = [keys[i] for i in kept], [1] * len(kept)
        send(self, labels, keys, outputs, signs)

    return patch.object(Keyed, "send_outputs", mutated)


def blocks_are_closed_too_early() -> AbstractContextManager[object]:
    """Drop the undo log too early."""
    close = Speculative.close
    return patch.object(Speculative, "close", lambda self, frontier: close(self, INFINITY))


def blocks_are_settled_out_of_order() -> AbstractContextManager[object]:
    """Settle the row of a late element after rows that were applied after it."""
    settle = Speculative.settle

    def mutated(self: Speculative, frontier: int, exactly: bool = False) -> None:
        self.batches.sort(key=lambda block: block.last_time)
        settle(self, frontier, exactly)

    return patch.object(Speculative, "settle", mutated)


def markers_are_not_aligned() -> AbstractContextManager[object]:
    """Process frames after a marker before the markers of other channels have arrived."""
    return patch.object(Alignment, "admit", lambda self, channel, frame: True)
