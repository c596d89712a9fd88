"""The status of a cluster as a table for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from driftline.deploy.cluster.status import ClusterStatus, FlowStatus
from driftline.engine.moments import time_in_words
from driftline.engine.visible import visible, visible_lines


def as_table(status: ClusterStatus) -> RenderableType:
    """Agents, flows, and the nodes of the flows that go on."""
    return Group(*(_flow(flow) for flow in status.flows), _agents(status))


def _agents(status: ClusterStatus) -> Table:
    table = Table("agent", "for", "host", "slots", "taken by", title="agents", title_justify="left")
    for agent in status.agents:
        taken = [
            f"{flow.name}/{name}"
            for flow in status.flows
            if not flow.over
            for name, place in _places(flow)
            if place == agent.name
        ]
        slots = "" if agent.kind == "master" else str(agent.slots)
        table.add_row(agent.name, str(agent.kind), agent.host, slots, ", ".join(taken))
    return table


def _places(flow: FlowStatus) -> list[tuple[str, str]]:
    nodes = [(node.name, node.agent) for node in flow.nodes]
    return nodes + [(f"front-{i}", agent) for i, agent in enumerate(flow.fronts)]


def _flow(flow: FlowStatus) -> RenderableType:
    facts = [f"policy {flow.policy}", f"incarnation {flow.incarnation}"]
    if flow.frontier is not None:
        facts.append(f"delivered up to {time_in_words(flow.frontier - 1)}")
    if flow.lag_s is not None:
        facts.append(f"lag {flow.lag_s:.1f} s")
    if flow.last_snapshot is not None:
        facts.append(f"snapshot {flow.last_snapshot['number']}")
    lines: list[RenderableType] = [
        Text.assemble((f"{flow.name}: ", "bold"), visible_lines(flow.state)),
        Text("  " + ", ".join(facts)),
    ]
    lines += [Text(f"  {visible_lines(text)}", style="red") for text in flow.trouble]
    if not flow.over and flow.waits_for and flow.state != "running":
        lines.append(Text(f"  waits for: {visible(flow.waits_for)}"))
    if not flow.over:
        lines.append(_nodes(flow))
    return Group(*lines)


def _nodes(flow: FlowStatus) -> Table:
    table = Table("node", "agent", "key groups", "state", "outputs", box=None, padding=(0, 2))
    for node in flow.nodes:
        first, last = node.key_groups
        outputs = str(node.figures.get("outputs", ""))
        table.add_row(node.name, node.agent, f"{first} to {last}", visible(node.state), outputs)
    return table
