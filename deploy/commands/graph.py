"""The command `driftline graph`."""

from __future__ import annotations

import click

from driftline.deploy.graph import as_dot, as_text
from driftline.engine.flow.loading import load_flow


@click.command()
@click.argument("flow")
@click.option("--dot", is_flag=True, help="Print DOT (for Graphviz) instead of text.")
def graph(flow: str, dot: bool) -> None:
    """Print the graph of FLOW: a module or a .py file, with :NAME for one of several flows.

    NAME may also be a function without arguments that returns a Flow.
    """
    found = load_flow(flow)
    click.echo(as_dot(found) if dot else as_text(found))
