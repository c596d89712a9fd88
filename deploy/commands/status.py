"""Command `driftline status`: print the status of a cluster, and write it as JSON if asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from driftline.deploy.cluster.status import ClusterStatus, FlowStatus, status_of
from driftline.deploy.commands.cluster_options import ClusterAddress, in_cluster, transport_options
from driftline.deploy.local.directories.leftovers import short_folder
from driftline.deploy.roles.event_time_status import EventTimeStatus
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.texts import escape_controls, escape_lines, format_size, format_time
from driftline.engine.ui.consoles import wide_console
from driftline.engine.ui.options import json_option
from driftline.engine.ui.results import write_json


@click.command()
@click.argument("name", metavar="[NAME]", default="")
@in_cluster
@transport_options
@json_option
def status(
    cluster_address: ClusterAddress,
    network: TransportConfig,
    name: str,
    json_file: Path | None,
) -> None:
    """Show the agents and the flows of a cluster, or the flow NAME alone."""
    with cluster_address.open_tree() as tree, short_folder() as sockets:
        cluster_status = status_of(tree, sockets, network, name)
    write_json(json_file, cluster_status.as_json() | {"error": None})
    wide_console().print(as_table(cluster_status))


def as_table(status: ClusterStatus) -> RenderableType:
    """Render agents, flows, and the processes of flows that are not over."""
    damaged = [
        Text(f"{name}: {escape_controls(reason)}", style="red") for name, reason in status.damaged
    ]
    flows = [_flow(flow) for flow in status.flows]
    if not flows and not damaged:
        flows = [Text("no flows: `driftline submit` begins one")]
    return Group(*damaged, *flows, *([] if status.only else [_agents(status)]))


def _agents(status: ClusterStatus) -> RenderableType:
    if not status.agents:
        return Text("no agents are running: start `driftline agent`")
    table = Table(
        "agent", "roles", "host", "slots", "used by", title="agents", title_justify="left"
    )
    for agent in status.agents:
        taken = [
            f"{flow.name}/{member.name}"
            for flow in status.flows
            if not flow.over
            for member in (*flow.nodes, *flow.inputs)
            if member.agent == agent.name
        ]
        roles, slots = ", ".join(agent.roles), str(agent.slots)
        table.add_row(agent.name, roles, agent.host, slots, ", ".join(taken))
    return table


def _flow(flow: FlowStatus) -> RenderableType:
    lines: list[RenderableType] = [
        Text.assemble((f"{flow.name}: ", "bold"), escape_lines(flow.state)),
        _indented(", ".join(_facts(flow))),
    ]
    lines += [_indented(text, "red") for text in flow.problems]
    if not flow.over and flow.waits_for and flow.state != "running":
        lines.append(_indented(f"waits for: {flow.waits_for}"))
    lines += [_indented(text, "yellow") for text in flow.obstacles]
    lines += [_indented(text, "yellow") for text in flow.held_back]
    if flow.rescaling:
        lines.append(_indented(flow.rescaling))
    if flow.refused:
        lines.append(_indented(flow.refused, "red"))
    if not flow.over:
        lines.append(_processes(flow))
        if flow.event_time is not None:
            lines += _event_times(flow.event_time)
    return Group(*lines)


def _facts(flow: FlowStatus) -> Iterator[str]:
    yield f"policy {flow.policy}"
    yield f"incarnation {flow.incarnation}"
    if flow.recoveries:
        yield f"recoveries {flow.recoveries}"
    if flow.frontier is not None:
        last = flow.frontier - 1
        yield f"delivered up to {format_time(last)}" if last > 0 else "nothing delivered yet"
    if flow.lag_s is not None:
        yield f"delivery lag {flow.lag_s:.1f} s"
    if flow.last_snapshot is not None:
        age_s = flow.snapshot_age_s
        ago = f" ({age_s:.0f} s ago)" if age_s is not None else ""
        yield f"snapshot {flow.last_snapshot['number']}{ago}"


def _indented(text: str, style: str = "") -> RenderableType:
    return Padding(Text(escape_lines(text), style=style), (0, 0, 0, 2), expand=False)


def _processes(flow: FlowStatus) -> Table:
    """Render a row for each node and front, with a count and a number of bytes.

    A node counts the outputs that its consumer has stored, in all sessions; the bytes wait for the
    consumer. A front counts the records sent since its process started; the bytes are in flight.
    """
    table = Table(box=None, padding=(0, 2))
    for name in ("process", "agent", "key groups", "state"):
        table.add_column(name)
    for name in ("since its start", "undelivered"):
        table.add_column(name, justify="right")
    for member in (*flow.nodes, *flow.inputs):
        groups, figures = member.key_groups, member.figures
        count_name, waiting_name = "records", "in_flight_bytes"
        if groups is not None:
            count_name, waiting_name = "outputs", "waiting_bytes"
        table.add_row(
            *(member.name, member.agent, f"{groups[0]}-{groups[1]}" if groups else ""),
            *(escape_controls(member.state), _counted(figures, count_name)),
            _size(figures, waiting_name),
        )
    return table


def _event_times(event_times: EventTimeStatus) -> tuple[Table, Table]:
    """Render the watermarks of sources and operators."""
    sources, operators = (Table(box=None, padding=(0, 2)) for _ in range(2))
    for name in ("source", "state", "watermark"):
        sources.add_column(name)
    sources.add_column("unmoved for", justify="right")
    for source in event_times.sources:
        watermark = source.watermark or ("ended" if source.state == "ended" else "no record yet")
        unmoved = f"{source.unmoved_s:.0f} s"
        sources.add_row(escape_controls(source.name), source.state, watermark, unmoved)
    for name in ("operator", "watermark", "held back by"):
        operators.add_column(name)
    for operator in event_times.operators:
        held_back_by = operator.held_back_by
        if held_back_by is None:
            held_back_by = "" if operator.watermark is None else "no source is active"
        watermark = operator.watermark or ("no record yet" if operator.held_back_by else "ended")
        operators.add_row(escape_controls(operator.name), watermark, escape_controls(held_back_by))
    return sources, operators


def _counted(figures: Mapping[str, int], name: str) -> str:
    return f"{figures[name]:,} {name}" if name in figures else ""


def _size(figures: Mapping[str, int], name: str) -> str:
    return format_size(figures[name]) if name in figures else ""
