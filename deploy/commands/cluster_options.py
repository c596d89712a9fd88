"""Options shared by commands for a cluster: its address, and how its processes connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import click
from msgspec import Struct

from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.commands.config_file import env_variable
from driftline.deploy.runtime.config import SESSION_S
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.errors import Unavailable
from driftline.engine.ui.options import FiniteRange


class ClusterAddress(Struct, frozen=True):
    """Address of a cluster: its ZooKeeper servers and path, and the session timeout."""

    zookeeper: str
    session_s: float

    @contextmanager
    def open_tree(self, *, new: bool = False) -> Iterator[ZooKeeperTree]:
        """Open the cluster's tree within this context.

        Raises Unavailable if ZooKeeper cannot be reached, or if no agent has created the tree yet;
        with `new` the latter is allowed.
        """
        tree = ZooKeeperTree(self.zookeeper, self.session_s)
        try:
            if not new and not tree.has_cluster:
                raise Unavailable(
                    f"there is no cluster at {self.zookeeper}: start its first agent, which "
                    "creates that path; see `driftline agent --help`"
                )
            yield tree
        finally:
            tree.close()


def in_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a cluster, as an argument `cluster_address`.

    The command exits with a usage error if the user does not give --zookeeper.
    """

    @optionally_in_cluster
    @wraps(command)
    def with_address(cluster_address: ClusterAddress | None, **others: object) -> None:
        if cluster_address is None:
            raise click.UsageError(
                "give the ZooKeeper servers of the cluster: --zookeeper HOSTS. `driftline verify "
                "DIRECTORY` reports on a run of this machine"
            )
        command(cluster_address=cluster_address, **others)

    return with_address


def optionally_in_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `in_cluster`, but not as required options.

    Without --zookeeper the argument `cluster_address` is None.
    """

    @click.option("--zookeeper", default="", metavar="HOSTS", envvar=env_variable("zookeeper"),
                  help="ZooKeeper servers of the cluster: host:port,host:port/path.")  # fmt: skip
    @click.option("--session", "session_s", default=SESSION_S, show_default=True, metavar="S",
                  envvar=env_variable("session"), type=FiniteRange(0.1),
                  help="ZooKeeper session timeout in seconds: a process that is silent for longer "
                  "counts as dead. The server may limit it to its own bounds.")  # fmt: skip
    @wraps(command)
    def with_address(zookeeper: str, session_s: float, **others: object) -> None:
        address = ClusterAddress(zookeeper, session_s) if zookeeper else None
        command(cluster_address=address, **others)

    return with_address


def transport_options_with(keys_help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the transport options, as an argument `network`.

    `keys_help`: the help of `--keys`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--bind", default="", metavar="HOST", envvar=env_variable("bind"),
                      help="Address of this host to listen on; each process takes a free port.  "
                      "[default: this machine only]")  # fmt: skip
        @click.option("--advertise", default="", metavar="HOST", envvar=env_variable("advertise"),
                      help="Address that other hosts connect to, if it differs from --bind.",
                      )  # fmt: skip
        @click.option("--keys", envvar=env_variable("keys"), metavar="FILE",
                      type=click.Path(path_type=Path, exists=True, resolve_path=True),
                      help=keys_help)  # fmt: skip
        @wraps(command)
        def with_network(bind: str, advertise: str, keys: Path | None, **others: object) -> None:
            if advertise and not bind:
                raise click.UsageError("--advertise needs --bind: where the processes listen")
            key_file = str(keys) if keys is not None else ""
            network = (
                TransportConfig("tcp", bind, advertise, key_file)
                if bind
                else TransportConfig(keys=key_file)
            )
            command(network=network, **others)

        return with_network

    return decorate


transport_options = transport_options_with(
    "Key file of this host; the file `authorised` is in the same directory: see `driftline keys`."
)
"""Decorator with the transport options of most commands."""
