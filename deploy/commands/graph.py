"""The command `driftline graph`."""

from __future__ import annotations

import click

from driftline.deploy.graph import as_dot, as_text
from driftline.engine.flow.loading import load_flow
from driftline.engine.ui.options import flow_argument


@click.command()
@flow_argument
@click.option("--dot", is_flag=True, help="Print DOT (for Graphviz) instead of text.")
def graph(flow: str, dot: bool) -> None:
    """Print the graph of FLOW: its operators, states and stages.

    FLOW is a module or a .py file. If it holds several flows, add :NAME, the name of a Flow, or of
    a function without arguments that returns one.
    """
    loaded = load_flow(flow)
    click.echo(as_dot(loaded) if dot else as_text(loaded))
