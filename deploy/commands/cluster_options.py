"""Options shared by the commands of a cluster: its address, and the transport of its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import click

from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.commands.config_file import env_variable
from driftline.deploy.runtime.config import SESSION_S
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.errors import Unavailable
from driftline.engine.ui.options import FiniteRange


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Address of a cluster: its ZooKeeper servers and path, and the session timeout."""

    zookeeper: str
    session_s: float

    @contextmanager
    def open_tree(self, *, new: bool = False) -> Iterator[ZooKeeperTree]:
        """Open the tree of the cluster; `new`: its path may be created. Raises Unavailable."""
        tree = ZooKeeperTree(self.zookeeper, self.session_s)
        try:
            if not new and not tree.has_cluster:
                raise Unavailable(
                    f"there is no cluster at {self.zookeeper}: the first of its agents makes that "
                    "path; see `driftline agent --help`"
                )
            yield tree
        finally:
            tree.close()


def in_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a cluster, as an argument `place`."""

    @perhaps_in_cluster
    @wraps(command)
    def with_place(place: ClusterAddress | None, **others: object) -> None:
        if place is None:
            raise click.UsageError("say which cluster: --zookeeper HOSTS")
        command(place=place, **others)

    return with_place


def perhaps_in_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the same options, but optional: `place` is None without a cluster."""

    @click.option("--zookeeper", default="", metavar="HOSTS", envvar=env_variable("zookeeper"),
                  help="ZooKeeper of the cluster: host:port,host:port/path.")  # fmt: skip
    @click.option("--session", "session_s", default=SESSION_S, show_default=True, metavar="S",
                  envvar=env_variable("session"), type=FiniteRange(0.1),
                  help="Seconds of silence after which ZooKeeper takes a process for dead. It may "
                  "set bounds of its own.")  # fmt: skip
    @wraps(command)
    def with_place(zookeeper: str, session_s: float, **others: object) -> None:
        command(place=ClusterAddress(zookeeper, session_s) if zookeeper else None, **others)

    return with_place


def transport_options_with(keys_help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command its transport options, as an argument `network`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--bind", default="", metavar="HOST", envvar=env_variable("bind"),
                      help="Address of this host at which its processes listen, each at a free "
                      "port. Without it they are reached on this machine alone.")  # fmt: skip
        @click.option("--advertise", default="", metavar="HOST", envvar=env_variable("advertise"),
                      help="Address by which others reach them, if that is another one.",
                      )  # fmt: skip
        @click.option("--keys", envvar=env_variable("keys"), metavar="FILE",
                      type=click.Path(path_type=Path, exists=True, resolve_path=True),
                      help=keys_help)  # fmt: skip
        @wraps(command)
        def with_network(bind: str, advertise: str, keys: Path | None, **others: object) -> None:
            if advertise and not bind:
                raise click.UsageError("--advertise needs --bind: where the processes listen")
            file = str(keys) if keys is not None else ""
            network = (
                TransportConfig("tcp", bind, advertise, file)
                if bind
                else TransportConfig(keys=file)
            )
            command(network=network, **others)

        return with_network

    return decorate


transport_options = transport_options_with(
    "The key of this host, with `authorised` beside it: see `driftline keys`."
)
"""Decorator with the transport options of most commands."""
