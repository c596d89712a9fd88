"""The batch of acknowledgements that a node is collecting for the acker.

Invariant: what is taken out holds, with the id of a frame that was worked off, the ids of all
frames sent because of it; so nothing may be taken out in the middle of a turn's stage.
"""

from __future__ import annotations

Cells = tuple[tuple[int, int, int], ...]
"""(stage, tracking time, XOR of ids)"""

Intervals = tuple[tuple[int, int, int], ...]
"""(front, since, until)"""


class Acks:
    """What has been worked off and sent since the last acknowledgement."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], int] = {}
        self._covered: list[tuple[int, int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._cells or self._covered)

    def add(self, stage: int, time: int, ids: int) -> None:
        """A frame, or a token, was sent or worked off."""
        self._cells[stage, time] = self._cells.get((stage, time), 0) ^ ids

    def cover(self, front: int, since: int, until: int) -> None:
        """A frame of a front was worked off."""
        self._covered.append((front, since, until))

    def take(self) -> tuple[Cells, Intervals]:
        """Everything; nothing is left."""
        cells = tuple((stage, time, ids) for (stage, time), ids in self._cells.items() if ids)
        covered = tuple(self._covered)
        self._cells.clear()
        self._covered.clear()
        return cells, covered
