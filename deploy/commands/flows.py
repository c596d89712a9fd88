"""Commands on the flows of a cluster: stop, cancel, rescale, remove."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import click
from msgspec.structs import replace

from driftline.coordinator.draining import ENDED_ON_REQUEST
from driftline.deploy.cluster.placement import rescale as rescale_flow
from driftline.deploy.cluster.records import DesiredState, Submission
from driftline.deploy.cluster.status import find_problems
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    RunReplaced,
    fail,
    has_ended,
    is_current,
    list_agents,
    registry_of,
    submission_of,
    update_submission,
)
from driftline.deploy.cluster.submissions import remove as remove_flow
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.commands.cluster_options import ClusterAddress, in_cluster
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.keygroups import node_names
from driftline.engine.texts import counted, print_note
from driftline.engine.ui.options import FiniteRange, json_option
from driftline.engine.ui.results import write_json

POLL_EVERY_S = 0.2
"""Seconds between two checks of a requested change."""

WAIT_S = 600.0
"""Default of `--wait`, and the wait of `cancel`, which has no such option (seconds)."""


def wait_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--wait`, as an argument `wait_s` (seconds)."""
    option = click.option(
        "--wait", "wait_s", default=WAIT_S, show_default=True, metavar="S", type=FiniteRange(0),
        help="Seconds to wait for completion; 0: send the request, do not wait.",
    )  # fmt: skip
    return option(command)


flow_name = click.argument("name", metavar="NAME")


@click.command()
@flow_name
@in_cluster
@wait_option
@json_option
def stop(cluster_address: ClusterAddress, name: str, wait_s: float, json_file: Path | None) -> None:
    """Drain and stop the flow NAME.

    The flow accepts no more records, delivers the outputs of accepted ones, and writes a last
    snapshot. If it is submitted again, it resumes from that snapshot and replays nothing.
    """
    with cluster_address.open_tree() as tree:
        run = submission_of(tree, name).run
        submission = update_submission(
            tree, name, lambda before: replace(before, desired_state=DesiredState.STOP), run
        )
        ending = _wait_for_end(tree, submission, 0)
        if wait_s and not ending:
            _print_problems(tree, submission)
            ending = _wait_for_end(tree, submission, wait_s)
    _print_end(name, ending, json_file)
    if wait_s and not ending:
        raise click.exceptions.Exit(1)


@click.command()
@flow_name
@in_cluster
@json_option
def cancel(cluster_address: ClusterAddress, name: str, json_file: Path | None) -> None:
    """Cancel the flow NAME, without a drain.

    Outputs in flight are not delivered. If the flow is submitted again, it replays their records.
    """
    with cluster_address.open_tree() as tree:
        submission = submission_of(tree, name)
        if fail(tree, submission, CANCELLED, ending := "cancelled by a command"):
            with suppress(RunReplaced):  # another command has submitted or removed it meanwhile
                update_submission(
                    tree,
                    name,
                    lambda before: replace(before, desired_state=DesiredState.CANCEL),
                    submission.run,
                )
        else:
            ending = _wait_for_end(tree, submission, WAIT_S)
    _print_end(name, ending, json_file)


@click.command()
@flow_name
@click.argument("nodes", metavar="N", type=click.IntRange(1, 64))
@in_cluster
@wait_option
@json_option
def rescale(
    cluster_address: ClusterAddress, name: str, nodes: int, wait_s: float, json_file: Path | None
) -> None:
    """Change the number of nodes (worker processes) of the flow NAME in a cluster to N.

    New nodes start at agents with free slots. They copy the state while the flow runs, and then
    replace the old nodes. The outputs are the same, in the same order.
    """
    with cluster_address.open_tree() as tree:
        submission = rescale_flow(tree, name, nodes)
        before = submission.current_layout(registry_of(tree, name))
        give_up_at = monotonic() + wait_s
        while True:
            state = registry_of(tree, name)
            layout = submission.current_layout(state)
            if len(layout) == nodes or monotonic() >= give_up_at:
                break
            if has_ended(state, submission):
                raise StateMismatch(f"flow {name!r} has ended with {counted(len(layout), 'node')}")
            latest = submission_of(tree, name)
            if latest.run != submission.run:
                raise RunReplaced(name)
            if latest.desired_nodes not in (0, nodes):
                raise Unavailable(
                    f"flow {name!r} keeps its {counted(len(layout), 'node')}: another command has "
                    "requested that, or a new node cannot start; see the log of the node's agent"
                )
            sleep(POLL_EVERY_S)
    agents = [submission.agent_of(number) for number in layout]
    is_done = len(layout) == nodes
    write_json(json_file, {"name": name, "done": is_done, "nodes": agents, "error": None})
    if is_done:
        places = (f"node-{number} at {agent}" for number, agent in zip(layout, agents, strict=True))
        replaced = "" if layout == before else f", in place of {', '.join(node_names(before))}"
        click.echo(f"flow {name} now has {counted(nodes, 'node')}: {', '.join(places)}{replaced}")
    else:
        click.echo(f"rescale of flow {name} to {counted(nodes, 'node')} is requested; `driftline "
                   f"status {name}` shows its progress")  # fmt: skip
        if wait_s:
            raise click.exceptions.Exit(1)


@click.command()
@flow_name
@in_cluster
@json_option
def remove(cluster_address: ClusterAddress, name: str, json_file: Path | None) -> None:
    """Remove the metadata of the flow NAME, which has ended or is damaged, from the cluster.

    Its files stay on the hosts of its agents. Remove them before you submit a new flow of the same
    name.
    """
    with cluster_address.open_tree() as tree:
        submission = remove_flow(tree, name)
    output = None if submission is None else submission.output
    agents = _agents_of(submission)
    write_json(json_file, {"name": name, "agents": agents, "output": output, "error": None})
    click.echo(
        f"flow {name} is removed; its files stay. Before you submit a new flow of this name:"
    )
    agent_names = ", ".join(agents) or "each agent"
    click.echo(
        f"  remove the directory flows/{name} in the state directory (--state) of {agent_names}"
    )
    if submission is not None and submission.consumer:
        click.echo(f"  remove the --state of `driftline serve --name {name}`")
    else:
        click.echo(f"  move or remove {output or 'its outputs'}")


def _agents_of(submission: Submission | None) -> list[str]:
    return [] if submission is None else sorted({*submission.node_agents, *submission.front_agents})


def _wait_for_end(tree: ZooKeeperTree, submission: Submission, wait_s: float) -> str:
    """Wait until a run has ended. Return how; "" if it does not end within `wait_s`.

    Raises Unavailable if it failed, RunReplaced if another run has begun or the flow was removed.
    """
    give_up_at = monotonic() + wait_s
    while True:
        is_latest = is_current(tree, submission)
        state = tree.registry(submission.name).read()
        outcome = None if state is None else state.outcome
        if outcome is not None and outcome.run == submission.run:
            if outcome.error and outcome.error != CANCELLED:
                raise Unavailable(f"the flow has failed: {outcome.error}: {outcome.text}")
            return outcome.text or "complete: its inputs have ended, and all outputs are delivered"
        if not is_latest or state is None:
            raise RunReplaced(submission.name)
        if monotonic() >= give_up_at:
            return ""
        sleep(POLL_EVERY_S)


def _print_problems(tree: ZooKeeperTree, submission: Submission) -> None:
    """Print the reasons why a flow does not run, and therefore does not drain."""
    layout = submission.current_layout(registry_of(tree, submission.name))
    problems = find_problems(submission, layout, list_agents(tree))
    for text in problems:
        print_note(f"flow {submission.name} waits: {text}")
    if problems:
        print_note(f"waiting for its end; `driftline cancel {submission.name}` ends it at once")


def _print_end(name: str, ending: str, json_file: Path | None) -> None:
    """Print how a flow ended, also as JSON; `ending`: "" if it has not ended yet."""
    is_over = bool(ending)
    write_json(json_file, {"name": name, "ended": is_over, "how": ending or None, "error": None})
    if is_over:
        resumes = ending == ENDED_ON_REQUEST
        hint = "; the same `driftline submit` resumes it" if resumes else ""
        click.echo(f"flow {name} has ended: {ending}{hint}")
    else:
        click.echo(
            f"flow {name} is draining and has not ended yet; `driftline status {name}` shows "
            f"its progress, and `driftline cancel {name}` ends it at once"
        )
