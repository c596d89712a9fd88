"""Formats the graph of a flow: as text for a terminal, as DOT for a picture."""

from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.flow.plan import plan


def as_text(flow: Flow) -> str:
    """The flow as text, stage by stage: a line for each operator with inputs, states and fields."""
    cut = plan(flow)
    ports = {port.vertex.number: port for port in cut.ports}
    lines = [f"flow {flow.name}: {len(flow.vertices)} operators, {cut.stages} stages"]
    for vertex in flow.vertices:
        port = ports.get(vertex.number)
        if port is not None:
            lines.append(f"  stage {port.stage}" + (", shuffled by key" if port.feeders else ""))
        lines.append(f"    {vertex.kind} {vertex.name}{_details(flow, vertex)}")
    return "\n".join(lines)


def as_dot(flow: Flow) -> str:
    """The flow as DOT, for Graphviz; a shuffle is a dashed edge."""
    flow.validate()
    lines = [f'digraph "{flow.name}" {{', "  rankdir=LR;", "  node [shape=box];"]
    shapes = {"source": "invhouse", "sink": "house"}
    for vertex in flow.vertices:
        states = "".join(f"\\n{type(s).__name__} {s.name}" for s in vertex.states)
        shape = f", shape={shapes[vertex.kind]}" if vertex.kind in shapes else ""
        lines.append(f'  {vertex.number} [label="{vertex.name}\\n{vertex.kind}{states}"{shape}];')
    for vertex in flow.vertices:
        style = " [style=dashed, label=key]" if vertex.keyed else ""
        lines += [f"  {before} -> {vertex.number}{style};" for before in vertex.inputs]
    return "\n".join([*lines, "}"])


def _details(flow: Flow, vertex: Vertex) -> str:
    names = [flow.vertices[number].name for number in vertex.inputs]
    details = [f" <- {', '.join(names)}"] if names else []
    if vertex.states:
        details.append("; ".join(f"{type(s).__name__} {s.name!r}" for s in vertex.states))
    if vertex.fields and vertex.kind != "sink":
        details.append(f"gives ({', '.join(vertex.fields)})")
    return "  ".join(details)
