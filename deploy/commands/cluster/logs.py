"""The command `driftline logs`."""

from __future__ import annotations

import click

from driftline.deploy.cluster.agents.logbook import LINES_MAX
from driftline.deploy.cluster.agents.reading import LogLines
from driftline.deploy.commands.cluster.places import Place, in_cluster, reached
from driftline.deploy.host.sockets.transport import Network
from driftline.deploy.run.directories.leftovers import short_folder
from driftline.engine.visible import complain

LINES = 100


@click.command()
@click.argument("flow", metavar="[NAME]", default="")
@in_cluster
@reached
@click.option("--agent", default="", metavar="NAME", help="Only what this agent has of its host.")
@click.option("--lines", "count", default=LINES, show_default=True,
              type=click.IntRange(1, LINES_MAX), help="The last lines.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
def logs(
    place: Place,
    network: Network,
    flow: str,
    agent: str,
    count: int,
    follow: bool,
    as_json: bool,
) -> None:
    """Show what the processes of the flow NAME have logged, or all, on all hosts, by time.

    A line names its agent and process; if there are lines of several flows, its flow, too. Agents
    that live are asked; each keeps some MB of each flow in its --state, also of earlier runs.
    """
    with place.opened() as tree, short_folder() as sockets:
        lines = LogLines(tree, sockets, network, flow=flow, agent=agent, count=count)
        silent: frozenset[str] = frozenset()
        away: frozenset[str] = frozenset()
        for found in lines.read(follow=follow):
            for name in sorted(lines.silent - silent):
                complain(f"agent {name} does not answer: its lines are missing")
            for name in sorted(lines.away - away):
                complain(f"agent {name} is away: its lines are missing")
            silent, away = lines.silent, lines.away
            for line in found:
                click.echo(line.as_json() if as_json else line.as_text(named=lines.several))
