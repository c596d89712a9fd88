"""Command `driftline submit`: start or continue a flow in a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from driftline.connectors.outputs import resolve_checked_output
from driftline.deploy.cluster.submissions import list_agents, registry_of
from driftline.deploy.cluster.submitting import SubmitRequest, default_name, submit
from driftline.deploy.cluster.wheels import importable_wheel
from driftline.deploy.commands.cluster_options import ClusterAddress, in_cluster
from driftline.deploy.commands.options import flow_options
from driftline.deploy.runtime.config import Limits, Reading
from driftline.engine.flow.loading import load_flow
from driftline.engine.policy import get_policy
from driftline.engine.snapshots.savepoint_mapping import EMPTY_STATE, InitialState
from driftline.engine.sources.record import RecordFormat
from driftline.engine.texts import print_note
from driftline.engine.ui.options import (
    flow_argument,
    inputs_option,
    json_option,
)
from driftline.engine.ui.results import write_json


@click.command("submit")
@flow_argument
@in_cluster
@inputs_option(
    "An input, as for `driftline run`; may be repeated. If it is a file, the file must be on the "
    "host whose front reads it."
)
@click.option("--name", default="", metavar="NAME",
              help="Name of the flow in the cluster.  [default: the flow's own name, with - in "
                   "place of characters other than letters, digits and _ . -]",
              )  # fmt: skip
@click.option("--output", required=True, metavar="OUTPUT",
              help="Directory for the outputs: an absolute path, the same on every host that runs "
              "a node. Or the address of a sink.",
              )  # fmt: skip
@flow_options
@click.option("--wheel", metavar="FILE",
              type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A pure Python wheel that contains FLOW; every host gets a copy.",
              )  # fmt: skip
@click.option("--let-anyone-send", is_flag=True,
              help="Accept records from other machines without keys.",
              )  # fmt: skip
@json_option
def submit_flow(
    cluster_address: ClusterAddress,
    flow: str,
    inputs: tuple[str, ...],
    name: str,
    output: str,
    nodes: int | None,
    policy_name: str,
    ordering: str,
    snapshot_interval_ms: int,
    dead_letters: bool,
    record_format: RecordFormat,
    start: Path | None,
    drop: tuple[str, ...],
    rename: tuple[tuple[str, str], ...],
    accept_changed_code: bool,
    max_in_flight: int | None,
    wheel: Path | None,
    let_anyone_send: bool,
    json_file: Path | None,
) -> None:
    """Run FLOW in the cluster, until its inputs end or `driftline stop`.

    FLOW is a module or a .py file. It must be present on every host, unless --wheel sends it. Its
    nodes and fronts are assigned to agents with free slots, and do not move. After the flow has
    ended, the same command resumes it with its state.

    The savepoint of --from-savepoint must be readable, at the same path, on every host that runs a
    node. FLOW may have other operators than the flow that made the savepoint. Any number of flows
    may start from the same savepoint.
    """
    outputs = resolve_checked_output(output, Path())
    if outputs.is_directory and not outputs.directory.is_absolute():
        raise click.BadParameter(
            f"{output} is not an absolute path: every host that runs a node uses the same path",
            param_hint="--output",
        )
    initial_state = EMPTY_STATE
    if start is not None:
        initial_state = InitialState(str(start.resolve()), drop, rename)
    with importable_wheel(wheel):
        loaded = load_flow(flow)
    request = SubmitRequest(
        name or default_name(loaded),
        flow,
        Reading(inputs, record_format, max_in_flight, let_anyone_send),
        output,
        nodes,
        get_policy(policy_name, ordering),
        snapshot_interval_ms / 1000,
        dead_letters,
        Limits(),
        accept_changed_code,
        initial_state,
        wheel,
    )
    with cluster_address.open_tree() as tree:
        submission = submit(tree, loaded, request)
        layout = submission.current_layout(registry_of(tree, submission.name))
        alive = {agent.name for agent in list_agents(tree)}
    node_agents = [submission.agent_of(node) for node in layout]
    if submission.desired_nodes:
        node_agents = list(submission.node_agents[-submission.desired_nodes :])
    name, front_agents = submission.name, submission.front_agents
    report = {"name": name, "run": submission.run, "nodes": node_agents, "fronts": front_agents}
    write_json(json_file, report | {"error": None})
    click.echo(
        f"flow {name} is submitted: nodes at {', '.join(node_agents)}; fronts at "
        f"{', '.join(front_agents)}; outputs in {submission.output}"
    )
    for agent in sorted({*node_agents, *front_agents} - alive):
        print_note(f"agent {agent} is not running: the flow waits for it")
