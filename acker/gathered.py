"""The progress of a run as its nodes tell it: what the master knows in label order.

Every node has a tracker (`acker.tracker`), which hears everything; each frontier of each of them is
true by itself. So the largest is, too, and a master needs no tracker: a new one knows the progress
as soon as every node has said once how far it is.

Takes: what nodes tell (`Reached`). Gives: `processed`, `delivered`, `reached`, `oldest`, and which
nodes have outputs that their consumers lack. Invariant: `processed` and `delivered` never decrease.
"""

from __future__ import annotations

from collections.abc import Sequence


class Gathered:
    """The progress of one incarnation, from time `start`."""

    def __init__(self, nodes: int, start: int = 0) -> None:
        self.processed = start
        """All elements below this time have been worked off in all stages."""
        self.reached = start
        """The largest time that a front has promised before its end."""
        self._delivered = [0] * nodes
        self._left: list[int | None] = [None] * nodes
        self._oldest: list[tuple[int, int] | None] = [None] * nodes
        self._waits = [False] * nodes

    def tell(
        self,
        node: int,
        processed: int,
        delivered: int,
        reached: int,
        oldest: Sequence[int],
        waits: bool,
        left: int = -1,
    ) -> None:
        """A node tells how far it is; see `Reached`."""
        self.processed = max(self.processed, processed)
        self.reached = max(self.reached, reached)
        self._delivered[node] = max(self._delivered[node], delivered)
        self._oldest[node] = (oldest[0], oldest[1]) if len(oldest) == 2 else None
        self._waits[node] = waits
        before = self._left[node]
        self._left[node] = left if before is None else max(before, left)

    @property
    def delivered(self) -> int:
        """Consumers have all outputs below this time."""
        return min(self.processed, *self._delivered)

    @property
    def left(self) -> int | None:
        """No output with a later time has left a node; None until all of them have said that."""
        known = [left for left in self._left if left is not None]
        return max(known) if len(known) == len(self._left) else None

    @property
    def waits_for_logs(self) -> bool:
        """Whether a node knows of work that is done and waits for the input log of a front."""
        return any(self._waits)

    def undelivered(self) -> list[int]:
        """The nodes with outputs that are processed and that the consumer does not have."""
        return [node for node, time in enumerate(self._delivered) if time < self.processed]

    def oldest(self) -> tuple[int, int] | None:
        """(time, stage) of the oldest work under way that a node knows of, if any."""
        return min((oldest for oldest in self._oldest if oldest is not None), default=None)

    def to_ask(self) -> list[tuple[int, int]]:
        """No front: nodes ask idle fronts themselves, as they know sooner."""
        return []
