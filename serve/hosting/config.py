"""The configuration of a service's processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec import Struct

from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.texts import escape_file_name
from driftline.serve.views.hosted import HostedView
from driftline.serve.views.keyvalue import KeyValueView

JOURNAL = "journal"
"""The role of the journal's process; the role of any other process is the name of its view."""

RESERVED_NAMES = (JOURNAL, "input", "node")
"""Names that a view cannot have: other processes, or their directories, have these names."""

CHECKPOINT_S = 120.0
"""Largest interval in seconds between two checkpoints of a view that gets outputs. The fork for a
checkpoint delays answers by about 10 ms."""

CHECKPOINT_ITEMS = 5_000
"""Number of outputs after which a view writes a checkpoint without waiting for `CHECKPOINT_S`.
`ViewHost` increases the number during a bulk load. A restart applies the outputs since the last
checkpoint again, at about 10,000 per second."""

RETAIN_S = 600.0
"""Seconds for which views retain history, to answer as of an earlier T."""


class ViewSpec(Struct, frozen=True):
    """A view of a service: its name, its factory and its number of shards.

    `make`: the factory as ``module:function``, called with a `ViewLocation`; `options`: passed on
    to the factory.
    """

    name: str
    make: str
    shards: int = 1
    options: Mapping[str, str] | None = None

    def make_view(self, location: ViewLocation) -> HostedView:
        """Make the empty view."""
        module, _, function = self.make.partition(":")
        factory: Callable[[ViewLocation], HostedView] = getattr(import_module(module), function)
        return factory(location)


class ViewLocation(Struct, frozen=True):
    """The flow, directory, shard and options of a view. `directory`: for files of this shard."""

    flow: Flow
    directory: Path
    shard: int
    """The number of this shard, from 0."""
    shards: int
    """The number of shards of the view."""
    options: Mapping[str, str]


class ServiceConfig(Struct, frozen=True):
    """The configuration that all processes of a service share, and the role of this process."""

    process: ProcessConfig
    """The configuration of the flow's processes."""
    directory: str
    """The directory of the journal and the views."""
    views: tuple[ViewSpec, ...]
    network: TransportConfig = LOCAL
    """The network of the journal's process; nodes may reach it from other hosts."""
    retained_bytes: int | None = None
    """Size limit of the journal; None: no limit. Data that views need to restart may exceed it."""
    retained_s: float = RETAIN_S
    """Seconds for which views retain history."""
    checkpoint_s: float = CHECKPOINT_S
    checkpoint_items: int = CHECKPOINT_ITEMS
    role: str = ""
    """`JOURNAL`, or the name of a view."""
    shard: int = 0
    lifeline: int = -1
    keep_alive: int = -1
    """`lifeline`, `keep_alive`: file descriptors of pipes to the supervisor, -1 for none (see
    `deploy.runtime.supervision.lifeline`)."""

    def to_json(self) -> str:
        """Encode the configuration, as the command-line argument of its process."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_json(text: str) -> ServiceConfig:
        """Decode the result of `to_json`."""
        return msgspec.json.decode(text, type=ServiceConfig)

    @property
    def name(self) -> str:
        """The name of this process."""
        return self.role if self.role == JOURNAL else name_of(self.role, self.shard)

    @property
    def view(self) -> ViewSpec:
        """The view of this process. Precondition: its role is a view."""
        return next(view for view in self.views if view.name == self.role)

    @property
    def shard_names(self) -> list[str]:
        """The names of all shards of all views."""
        return [name_of(view.name, shard) for view in self.views for shard in range(view.shards)]

    def path(self, name: str) -> Path:
        """Return the directory of the journal or of a shard of a view."""
        return Path(self.directory) / escape_file_name(name)

    def query_socket(self, name: str) -> str:
        """Return the socket path for questions to a shard of a view."""
        return f"{self.process.sockets}/{escape_file_name(name)}.asks"

    @property
    def feeds_socket(self) -> str:
        """The socket path for followers of the journal."""
        return f"{self.process.sockets}/journal.feeds"


def name_of(view: str, shard: int) -> str:
    """Return the name of a shard of a view."""
    return f"{view}-{shard}"


def key_value_views(flow: Flow) -> tuple[ViewSpec, ...]:
    """Return the spec of a key-value view for each sink of a flow, with the sink's name.

    Raises FlowError if a sink has a reserved name.
    """
    if reserved := [sink.name for sink in flow.sinks if sink.name in RESERVED_NAMES]:
        raise FlowError(f"a service cannot serve a sink named {reserved[0]!r}: rename the sink")
    return tuple(
        ViewSpec(sink.name, f"{__name__}:make_key_value_view", options={"sink": str(number)})
        for number, sink in enumerate(flow.sinks)
    )


def make_key_value_view(location: ViewLocation) -> KeyValueView:
    """Make the view of the sink whose number is in the option `sink`."""
    return KeyValueView(int(location.options["sink"]))
