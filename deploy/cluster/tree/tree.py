"""The tree: where a cluster keeps what its agents and commands have to know of each other.

    agents/NAME                 an agent that lives: its kind, its places, what goes wrong there
    flows/NAME/submission       what was submitted, and which agents run its roles
    flows/NAME/registry         the decisions of the flow's master (`coordinator.registry`)
    flows/NAME/masters          who leads, and where

`ZNodes` keeps it in ZooKeeper, `Folder` in a directory of one machine; one contract holds for both.
A write names the version that it replaces, so of two writers one is refused. What is *held* is
there as long as the process that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from driftline.coordinator.registry import Registry
from driftline.engine.errors import StateMismatch

AGENTS, FLOWS, SUBMISSION = "agents", "flows", "submission"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(?<!\.lock)")

NAMES = "letters, digits, '.', '_' and '-', 64 at most, without '.lock' at the end"
"""Of what the names of flows and agents consist: `Folder` has files that end in .lock."""


def is_name(text: str) -> bool:
    """Whether a flow or an agent may have this name."""
    return _NAME.fullmatch(text) is not None


NEW = -1
"""The version to write what is not there yet."""


class Entry(NamedTuple):
    """What is stored at a path."""

    data: bytes
    version: int


class Conflict(StateMismatch):
    """Another process has written meanwhile."""


def unchecked() -> None:
    """What may be removed as it is."""


class Masters(Protocol):
    """Who leads a flow."""

    def leader(self) -> tuple[str, str]:
        """(process, address) of the master that leads; empty texts if none does.

        Raises Unavailable.
        """

    def forget(self, process: str) -> None:
        """This process has ended, as its parent knows: the next one need not wait for its silence.

        Soon, or never: it is forgotten with its session anyway.
        """

    def close(self) -> None:
        """Tell of changes no more."""


class Tree(Protocol):
    """Keeps small pieces of data by path. All calls but `close` raise Unavailable."""

    where: str
    """The tree, for people."""
    zookeeper: str
    """The servers and the path of the tree, if it is in ZooKeeper."""
    look_every_s: float
    """How often to look for changes, beside those that `changed` tells of."""

    def read(self, path: str) -> Entry | None:
        """What is stored at a path; None if nothing is."""

    def write(self, path: str, data: bytes, version: int) -> None:
        """Replace this version, or make a path that is NEW. Raises Conflict."""

    def children(self, path: str) -> list[str]:
        """The names beneath a path, sorted; of what is held, only what is held now."""

    def remove(self, path: str, check: Callable[[], None] = unchecked) -> None:
        """Remove a path and all beneath it, if it is there, in one step.

        `check` looks whether that may be, and raises if not. What it has read is still so when the
        path is removed; else Conflict is raised, and nothing is removed.
        """

    def hold(self, path: str, data: bytes) -> None:
        """Store data as long as this process lives, or replace what it holds there.

        Raises InUse if another process holds the path, and keeps it for some seconds.
        """

    def let_go(self, path: str) -> None:
        """Hold a path no more, if this process holds it: what another one holds stays."""

    def holder(self) -> str:
        """By what this process holds things now, if that outlives it for a while; else ""."""

    def succeed(self, holder: str) -> None:
        """The process that was this holder has ended: what it still holds is ours for the taking.

        Precondition: that is certain. "": nobody was.
        """

    def renew(self) -> None:
        """Hold again what is held no more, or was written by others. Raises Unavailable, InUse."""

    def masters(self, flow: str, changed: Callable[[], None]) -> Masters:
        """The masters of a flow; `changed`: see `on_change`."""

    def registry(self, flow: str) -> Registry:
        """The registry of a flow."""

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call this, from any thread, once after each look that has become out of date."""

    def close(self) -> None:
        """Hold nothing any more, and ask no more."""
