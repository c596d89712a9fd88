"""Stores of nodes that are needed no more, as the run has a later layout.

Layouts only follow each other, and each has larger numbers than the one before. So this holds
whoever leads: a node with a smaller number than all of a layout never runs again. One with a larger
number may be of a try that was given up, or of the next layout already: its store stays until a
later layout is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Container
from pathlib import Path

from driftline.engine.keygroups import Layout

PREFIX = "node-"


def remove_outdated(state: Path, layout: Layout, running: Container[str]) -> None:
    """Remove stores in `state` of nodes before a layout that was written, but of `running` ones."""
    for store in state.glob(f"{PREFIX}*"):
        number = store.name.removeprefix(PREFIX)
        if number.isdecimal() and int(number) < min(layout) and store.name not in running:
            shutil.rmtree(store, ignore_errors=True)
