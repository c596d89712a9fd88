"""The commands `driftline master`, `driftline node` and `driftline front`: agents on a host."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click
from rich.console import Console

from driftline.deploy.cluster.agent import AgentConfig, run_agent
from driftline.deploy.cluster.records import Kind
from driftline.deploy.cluster.tree.tree import NAMES, is_name
from driftline.deploy.commands.cluster.places import Place, in_cluster, reached
from driftline.deploy.commands.logged import logged
from driftline.deploy.commands.metrics import metrics_option
from driftline.deploy.host.sockets.transport import Network
from driftline.engine.errors import FlowError

SLOTS = 4


def _agent(kind: Kind) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of an agent of this kind, and run one."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @in_cluster
        @reached
        @click.option("--name", default="", metavar="NAME",
                      help="Name of this agent, the same at each start: flows keep their places."
                      f"  [default: HOST-{kind}]")  # fmt: skip
        @click.option("--state", required=True, metavar="DIR",
                      type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
                      help="Directory of this agent alone: what its processes keep on this host.",
                      )  # fmt: skip
        @_with_slots(kind)
        @metrics_option(
            "Serve metrics for Prometheus, /healthz, /readyz and /targets at PORT; its "
            "processes serve theirs at free ports of HOST, which /targets tells."
        )
        @logged
        @wraps(command)
        def with_agent(
            console: Console,
            place: Place,
            network: Network,
            name: str,
            state: Path,
            metrics: str,
            slots: int = 0,
        ) -> None:
            name = name or f"{socket.gethostname()}-{kind}"
            if not is_name(name):
                raise FlowError(
                    f"{name!r} cannot be the name of an agent: {NAMES}; give another --name"
                )
            config = AgentConfig(name, kind, state, slots, network, place.session_s, metrics)
            with place.opened(new=True) as tree:
                run_agent(config, tree)

        return with_agent

    return decorate


def _with_slots(kind: Kind) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option `--slots`, where there are any: a master has no place of its own."""
    if kind is Kind.MASTER:
        return lambda command: command
    return click.option(
        "--slots", default=SLOTS, show_default=True, type=click.IntRange(1, 256),
        help="Processes of all flows that it takes.",
    )  # fmt: skip


@click.command()
@_agent(Kind.MASTER)
def master() -> None:
    """Run masters on this host: one for each flow of the cluster, until Ctrl-C or SIGTERM.

    With ZooKeeper there may be any number of such agents. Of the masters of a flow one leads; the
    others stand by, and one of them takes over when it dies or is cut off. A master keeps nothing
    on its host.
    """


@click.command()
@_agent(Kind.NODE)
def node() -> None:
    """Run nodes on this host, for all flows of the cluster, until Ctrl-C or SIGTERM.

    The states of its nodes are in --state, and their outputs in the directory that each flow was
    submitted with. A node belongs to this agent from then on: the same command, on this host, goes
    on with it.
    """


@click.command()
@_agent(Kind.FRONT)
def front() -> None:
    """Run fronts on this host: they read the inputs of flows, until Ctrl-C or SIGTERM.

    What producers send is in input logs in --state, and survives; files are read where they are, on
    this host.
    """
