"""Beginning with a savepoint: its state becomes the first snapshot of a store that has none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from driftline.engine.flow.flow import Flow
from driftline.engine.snapshots.fitting import Choice, Fitted, fit
from driftline.engine.snapshots.jobs import LoadSnapshot, StoreSnapshot
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.snapshots.store import PartStore

FIRST = 1
"""The number of the snapshot that a savepoint becomes."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a flow begins with: a savepoint, and what the user says of it (see `Choice`)."""

    savepoint: str = ""
    """Its directory; "": the flow begins with an empty state."""
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    about: str = ""
    """Which savepoint it is, wherever it lies."""

    def fitted(self, flow: Flow) -> Fitted:
        """The savepoint as the state of a flow. Raises StateMismatch, SnapshotDamaged,
        Unavailable."""
        return fit(open_savepoint(Path(self.savepoint)), flow, Choice(self.drop, self.rename))


NOTHING = Beginning()


def begin_with(store: PartStore, fitted: Fitted, groups: Iterable[int]) -> None:
    """Make the state of these key groups the first snapshot of a store, and its only one.

    Raises SnapshotDamaged, Unavailable.
    """
    segments = {group: segment for group in groups if (segment := fitted.segment(group))}
    store.carry_out(LoadSnapshot(0))  # removes the parts of an interrupted attempt
    store.carry_out(StoreSnapshot(FIRST, segments, b""))
