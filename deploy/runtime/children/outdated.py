"""Stores of nodes that are needed no more, as the run has a later layout.

Layouts only follow each other, and each has larger numbers than the one before. So this holds
whoever leads: a node with a smaller number than all of a layout never runs again. One with a larger
number may be of a try that was given up, or of the next layout already: its store stays until a
later layout is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterator
from pathlib import Path

from driftline.engine.keygroups import Layout

PREFIX = "node-"


def stores_in(state: Path) -> Iterator[tuple[int, Path]]:
    """(number of a node, its store) for all nodes that have one in a state directory."""
    for store in state.glob(f"{PREFIX}*/"):
        number = store.name.removeprefix(PREFIX)
        if number.isdecimal():
            yield int(number), store


def remove_outdated(state: Path, layout: Layout, running: Container[str]) -> None:
    """Remove stores in `state` of nodes before a layout that was written, but of `running` ones."""
    for number, store in stores_in(state):
        if number < min(layout) and store.name not in running:
            shutil.rmtree(store, ignore_errors=True)
