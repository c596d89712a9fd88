"""Restoring: a snapshot on its way into the parts of a node, in a turn as much as has time.

Between the steps the node says Hello, and hears of a newer incarnation or of the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from deploy.assembly import Assembly
from deploy.pace import Pace
from engine.snapshots import Loaded, LoadSnapshot


class Restoring:
    """The beginning of one incarnation: what is loaded; it counts from time `start`."""

    def __init__(self, load: LoadSnapshot, start: int) -> None:
        self.load = load
        self.start = start
        self.assembly: Assembly | None = None
        self._steps: Iterator[None] | None = None

    def begin(self, result: object, assemble: Callable[..., Assembly]) -> None:
        """The disk has answered. Raises what it says if it cannot give the snapshot."""
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, Loaded)
        self.assembly = assemble(start=self.start, number=self.load.number, meta=result.meta)
        self._steps = self.assembly.load(result.segments, self.start)

    def go_on(self, pace: Pace) -> bool:
        """Do a turn's work. Returns whether it is done now. Raises SnapshotDamaged."""
        if self._steps is None:
            return False
        for _ in self._steps:
            if pace.step():
                return False
        self._steps = None
        return True

    @property
    def under_way(self) -> bool:
        """Whether there is more to do."""
        return self._steps is not None
