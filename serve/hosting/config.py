"""What the processes of a service are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import msgspec

from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.engine.flow.flow import Flow
from driftline.engine.texts import file_name
from driftline.serve.views.hosted import HostedView

JOURNAL = "journal"
"""The role of the journal's process; of the others it is the name of a view."""

CHECKPOINT_S = 120.0
"""Seconds between two checkpoints of a view, if few outputs come: an answer that is asked for just
when a copy is made for one waits for some 10 ms."""

CHECKPOINT_ITEMS = 5_000
"""So many outputs since the last checkpoint are reason for the next one: they are read again if
the view starts again, at some 10,000 a second."""

RETAIN_S = 600.0
"""How far back views answer as of a time."""


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """A view of a service: which one, how it is made, and in how many shards.

    `make`: ``module:function``, which is called with a `ViewLocation`.
    """

    name: str
    make: str
    shards: int = 1
    options: Mapping[str, str] | None = None

    def made(self, place: ViewLocation) -> HostedView:
        """The view, empty."""
        module, _, function = self.make.partition(":")
        make: Callable[[ViewLocation], HostedView] = getattr(import_module(module), function)
        return make(place)


@dataclass(frozen=True, slots=True)
class ViewLocation:
    """What a view knows of where it is. `directory`: for its own files."""

    flow: Flow
    directory: Path
    shard: int
    shards: int
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The configuration that all processes of a service share, and the role of this one."""

    process: ProcessConfig
    """Of the nodes and the master: who they are, where the sockets are."""
    directory: str
    """Of the journal and the views."""
    views: tuple[ViewSpec, ...]
    network: TransportConfig = LOCAL
    """Of the journal's process: nodes may reach it from other hosts."""
    retained_bytes: int | None = None
    """Bytes of the journal that stay at most, beyond what views need to begin with."""
    retained_s: float = RETAIN_S
    checkpoint_s: float = CHECKPOINT_S
    checkpoint_items: int = CHECKPOINT_ITEMS
    role: str = ""
    shard: int = 0
    lifeline: int = -1
    keep_alive: int = -1
    """The file descriptors of the pipes to the parent (`deploy.runtime.supervision.lifeline`)."""

    def to_json(self) -> str:
        """The argument of a process."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_json(text: str) -> ServiceConfig:
        """Decode `to_json`."""
        return msgspec.json.decode(text, type=ServiceConfig)

    @property
    def name(self) -> str:
        """The name of this process."""
        return self.role if self.role == JOURNAL else name_of(self.role, self.shard)

    @property
    def view(self) -> ViewSpec:
        """The view of this process. Precondition: its role is one."""
        return next(view for view in self.views if view.name == self.role)

    @property
    def names(self) -> list[str]:
        """The names of all shards of all views."""
        return [name_of(view.name, shard) for view in self.views for shard in range(view.shards)]

    def path(self, name: str) -> Path:
        """The directory of the journal or of a shard of a view."""
        return Path(self.directory) / file_name(name)

    def line(self, name: str) -> str:
        """The path at which a shard of a view is called, to be asked."""
        return f"{self.process.sockets}/{file_name(name)}.asks"

    @property
    def feeds(self) -> str:
        """The path at which the journal is called, to be followed."""
        return f"{self.process.sockets}/journal.feeds"


def name_of(view: str, shard: int) -> str:
    """The name of a shard of a view."""
    return f"{view}-{shard}"
