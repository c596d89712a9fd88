"""Command `driftline agent`: run processes of flows on a host."""

from __future__ import annotations

import socket
from pathlib import Path

import click
from rich.console import Console

from driftline.deploy.cluster.agent import AgentConfig, run_agent
from driftline.deploy.cluster.records import AgentRole
from driftline.deploy.cluster.zookeeper_tree import NAMES, is_name
from driftline.deploy.commands.cluster_options import ClusterAddress, in_cluster, transport_options
from driftline.deploy.commands.options import logging_options, metrics_option
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.errors import FlowError

SLOTS = 8
"""Default of `--slots`."""


def _roles(context: click.Context, param: click.Parameter, value: str) -> tuple[AgentRole, ...]:
    """Parse `--roles`; the result is in the order of `AgentRole`. Raises BadParameter."""
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in list(AgentRole)]:
        raise click.BadParameter(f"{unknown[0]!r} is not a role: there are {', '.join(AgentRole)}")
    return tuple(role for role in AgentRole if role in names)


@click.command()
@in_cluster
@transport_options
@click.option("--roles", default=",".join(AgentRole), show_default=True, metavar="A,B",
              callback=_roles,
              help="Processes that this agent may run: any of master, node, front.")  # fmt: skip
@click.option("--name", default="", metavar="NAME",
              help="Name of this agent. Keep it across restarts: nodes and fronts are bound to it."
              "  [default: the name of the host]")  # fmt: skip
@click.option("--state", required=True, metavar="DIR",
              type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
              help="Directory for the data of this agent's processes. No other agent may use it.",
              )  # fmt: skip
@click.option("--slots", default=SLOTS, show_default=True, type=click.IntRange(1, 256),
              help="Maximum number of nodes and fronts on this agent, over all flows.")  # fmt: skip
@metrics_option(
    "Serve metrics for Prometheus, /healthz, /readyz and /targets at PORT. The processes of the "
    "agent serve their metrics at free ports of HOST; /targets lists them."
)
@logging_options
def agent(
    console: Console,
    cluster_address: ClusterAddress,
    network: TransportConfig,
    roles: tuple[AgentRole, ...],
    name: str,
    state: Path,
    slots: int,
    metrics: str,
) -> None:
    """Run masters, nodes and fronts of a cluster on this host, until Ctrl-C or SIGTERM.

    Each agent with the role master runs one master for each flow. One master of each flow leads,
    and the others are standbys: if the leader dies or is cut off, a standby takes over. A master
    stores nothing on its host.

    Nodes keep their state in --state, and write outputs to the directory that each flow was
    submitted with. Fronts read the inputs. A file is read on this host; records of producers are
    stored in input logs in --state. Nodes and fronts do not move to another agent: after a restart
    of the host, run the same command there to start them again.
    """
    name = name or socket.gethostname()
    if not is_name(name):
        raise FlowError(f"{name!r} cannot be the name of an agent: {NAMES}; give another --name")
    config = AgentConfig(name, roles, state, slots, network, cluster_address.session_s, metrics)
    with cluster_address.open_tree(new=True) as tree:
        run_agent(config, tree)
