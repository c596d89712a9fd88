"""The command `driftline graph`: the graph of a flow as text for a terminal, or as DOT."""

from __future__ import annotations

import click

from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.outline import has_default_name
from driftline.engine.flow.plan import make_plan
from driftline.engine.operators.operator import Vertex
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


def as_text(flow: Flow) -> str:
    """Return the flow as text by stage: a line per operator with inputs, states and fields."""
    plan = make_plan(flow)
    ports = {port.vertex.number: port for port in plan.ports}
    lines = [f"flow {flow.name}: {len(flow.vertices)} operators, {plan.stages} stages"]
    for vertex in flow.vertices:
        port = ports.get(vertex.number)
        if port is not None:
            lines.append(f"  stage {port.stage}" + (", shuffled by key" if port.upstreams else ""))
        kind = "" if has_default_name(vertex) else f"{vertex.kind} "
        lines.append(f"    {kind}{vertex.name}{_details(flow, vertex)}")
    return "\n".join(lines)


def as_dot(flow: Flow) -> str:
    """Return the flow as DOT, for Graphviz; a shuffle is a dashed edge."""
    flow.validate()
    lines = [f'digraph "{_escaped(flow.name)}" {{', "  rankdir=LR;", "  node [shape=box];"]
    for vertex in flow.vertices:
        states = "".join(f"\\n{type(s).__name__} {_escaped(s.name)}" for s in vertex.states)
        operator = vertex.operator
        shape = ", shape=invhouse" * operator.is_source + ", shape=house" * operator.is_sink
        label = f"{_escaped(vertex.name)}\\n{vertex.kind}{states}"
        lines.append(f'  {vertex.number} [label="{label}"{shape}];')
    for vertex in flow.vertices:
        style = " [style=dashed, label=key]" if vertex.is_keyed else ""
        lines += [f"  {source} -> {vertex.number}{style};" for source in vertex.inputs]
    return "\n".join([*lines, "}"])


def _escaped(text: str) -> str:
    """Escape a text for a quoted string of DOT."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _details(flow: Flow, vertex: Vertex) -> str:
    """Describe the inputs, states and output fields of an operator."""
    names = [flow.vertices[number].name for number in vertex.inputs]
    details = [f" <- {', '.join(names)}"] if names else []
    if vertex.states:
        details.append("; ".join(f"{type(s).__name__} {s.name!r}" for s in vertex.states))
    if vertex.fields and not vertex.operator.is_sink:
        details.append(f"gives ({', '.join(vertex.fields)})")
    return "  ".join(details)
