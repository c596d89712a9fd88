"""Commands on the flows of a cluster: stop, cancel, rescale, remove."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import click
from msgspec.structs import replace

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
from driftline.engine.texts import counted, print_error
from driftline.engine.ui.options import FiniteRange, json_option
from driftline.engine.ui.results import write_json

POLL_EVERY_S = 0.2

WAIT_S = 600.0


def wait_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--wait`, as an argument `wait_s`."""
    option = click.option(
        "--wait", "wait_s", default=WAIT_S, show_default=True, metavar="S", type=FiniteRange(0),
        help="Seconds to wait until the change is done; 0: send the request, do not wait.",
    )  # fmt: skip
    return option(command)


flow_name = click.argument("name", metavar="NAME")


@click.command()
@flow_name
@in_cluster
@wait_option
@json_option
def stop(place: ClusterAddress, name: str, wait_s: float, json_file: Path | None) -> None:
    """Drain and stop the flow NAME.

    The flow accepts no more records, delivers the outputs of accepted ones, and writes a last
    snapshot. If it is submitted again, it resumes from that snapshot and replays nothing.
    """
    with place.open_tree() as tree:
        run = submission_of(tree, name).run
        wanted = update_submission(
            tree, name, lambda before: replace(before, desired_state=DesiredState.STOP), run
        )
        how = _wait_for_end(tree, wanted, 0)
        if wait_s and not how:
            _print_problems(tree, wanted)
            how = _wait_for_end(tree, wanted, wait_s)
    _print_end(name, how, json_file)
    if wait_s and not how:
        raise click.exceptions.Exit(1)


@click.command()
@flow_name
@in_cluster
@json_option
def cancel(place: ClusterAddress, name: str, json_file: Path | None) -> None:
    """Cancel the flow NAME, without a drain.

    Outputs in flight are not delivered. If the flow is submitted again, it replays their records.
    """
    with place.open_tree() as tree:
        wanted = submission_of(tree, name)
        if fail(tree, wanted, CANCELLED, how := "cancelled by a command"):
            with suppress(RunReplaced):  # it is over, and was submitted again at once
                update_submission(
                    tree,
                    name,
                    lambda before: replace(before, desired_state=DesiredState.CANCEL),
                    wanted.run,
                )
        else:
            how = _wait_for_end(tree, wanted, WAIT_S)
    _print_end(name, how, json_file)


@click.command()
@flow_name
@click.argument("nodes", metavar="N", type=click.IntRange(1, 64))
@in_cluster
@wait_option
@json_option
def rescale(
    place: ClusterAddress, name: str, nodes: int, wait_s: float, json_file: Path | None
) -> None:
    """Change the number of nodes of the running flow NAME to N.

    New nodes start at agents with free slots. They copy the state while the flow runs, and then
    replace the old nodes. The outputs are the same, in the same order.
    """
    with place.open_tree() as tree:
        wanted = rescale_flow(tree, name, nodes)
        give_up_at = monotonic() + wait_s
        while True:
            state = registry_of(tree, name)
            layout = wanted.current_layout(state)
            if len(layout) == nodes or monotonic() >= give_up_at:
                break
            if has_ended(state, wanted):
                raise StateMismatch(f"flow {name!r} has ended with {counted(len(layout), 'node')}")
            now = submission_of(tree, name)
            if now.run != wanted.run:
                raise RunReplaced(name)
            if now.desired_nodes not in (0, nodes):
                raise Unavailable(
                    f"flow {name!r} keeps its {counted(len(layout), 'node')}: another command has "
                    "asked for that, or a new node cannot start; see the log of its agent"
                )
            sleep(POLL_EVERY_S)
    places = [wanted.agent_of(number) for number in layout]
    done = len(layout) == nodes
    write_json(json_file, {"name": name, "done": done, "nodes": places, "error": None})
    if done:
        click.echo(f"flow {name} has {counted(nodes, 'node')}, at {', '.join(places)}")
    else:
        click.echo(f"rescale of flow {name} to {counted(nodes, 'node')} is requested; `driftline "
                   f"status {name}` shows its progress")  # fmt: skip
        if wait_s:
            raise click.exceptions.Exit(1)


@click.command()
@flow_name
@in_cluster
@json_option
def remove(place: ClusterAddress, name: str, json_file: Path | None) -> None:
    """Remove the metadata of the flow NAME, which has finished or is damaged, from the cluster.

    Its files stay on the hosts of its agents. Remove them before you submit a new flow of the same
    name.
    """
    with place.open_tree() as tree:
        submission = remove_flow(tree, name)
    output = None if submission is None else submission.output
    places = _agents_of(submission)
    write_json(json_file, {"name": name, "agents": places, "output": output, "error": None})
    click.echo(
        f"flow {name} is removed; its files stay. Before you submit a new flow of this name:"
    )
    where = ", ".join(places) or "each agent"
    click.echo(f"  remove the directory flows/{name} in the --state of {where}")
    if submission is not None and submission.consumer:
        click.echo(f"  remove the --state of `driftline serve --name {name}`")
    else:
        click.echo(f"  remove {output or 'its outputs'}")


def _agents_of(submission: Submission | None) -> list[str]:
    return [] if submission is None else sorted({*submission.node_agents, *submission.front_agents})


def _wait_for_end(tree: ZooKeeperTree, submission: Submission, wait_s: float) -> str:
    """Return how a run ended; "" if it does not end within `wait_s`.

    Raises Unavailable if it failed, RunReplaced if another run has begun.
    """
    give_up_at = monotonic() + wait_s
    while True:
        current = is_current(tree, submission)
        state = tree.registry(submission.name).read()
        outcome = None if state is None else state.outcome
        if outcome is not None and outcome.run == submission.run:
            if outcome.error and outcome.error != CANCELLED:
                raise Unavailable(f"the flow has failed: {outcome.error}: {outcome.text}")
            return outcome.text or "complete: its inputs have ended, and all is delivered"
        if not current or state is None:
            raise RunReplaced(submission.name)
        if monotonic() >= give_up_at:
            return ""
        sleep(POLL_EVERY_S)


def _print_problems(tree: ZooKeeperTree, submission: Submission) -> None:
    """Print the reasons why a flow does not run, and therefore does not drain."""
    layout = submission.current_layout(registry_of(tree, submission.name))
    found = find_problems(submission, layout, list_agents(tree))
    for text in found:
        print_error(f"flow {submission.name} waits: {text}")
    if found:
        print_error(f"waiting for its end; `driftline cancel {submission.name}` ends it at once")


def _print_end(name: str, how: str, json_file: Path | None) -> None:
    write_json(json_file, {"name": name, "ended": bool(how), "how": how or None, "error": None})
    if how:
        click.echo(f"flow {name} is over: {how}")
    else:
        click.echo(
            f"flow {name} is asked to end, and has not yet; `driftline status {name}` shows how "
            f"far it is, and `driftline cancel {name}` ends it at once"
        )
