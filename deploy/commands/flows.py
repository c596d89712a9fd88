"""Commands on the flows of a cluster: stop, cancel, rescale, remove."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import click

from driftline.deploy.cluster.placement import rescale as rescale_flow
from driftline.deploy.cluster.records import DesiredState, Submission
from driftline.deploy.cluster.status import troubles
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    RunReplaced,
    agents,
    change,
    ended_by,
    fail,
    is_current,
    registry_of,
    submission_of,
)
from driftline.deploy.cluster.submissions import remove as remove_flow
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.commands.cluster_options import ClusterAddress, in_cluster
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.texts import complain, counted
from driftline.engine.ui.options import FiniteRange, json_option
from driftline.engine.ui.results import write_json

LOOK_EVERY_S = 0.2

WAIT_S = 600.0


def wait_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--wait`, as an argument `wait_s`."""
    option = click.option(
        "--wait", "wait_s", default=WAIT_S, show_default=True, metavar="S", type=FiniteRange(0),
        help="Seconds to wait for the end; 0: ask, and do not wait.",
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

    The flow accepts no more records, delivers the outputs of those it has, and writes a last
    snapshot. If it is submitted again, it resumes there and replays nothing.
    """
    with place.opened() as tree:
        run = submission_of(tree, name).run
        wanted = change(tree, name, lambda before: replace(before, wish=DesiredState.STOP), run)
        how = _end_of(tree, wanted, 0)
        if wait_s and not how:
            _tell_troubles(tree, wanted)
            how = _end_of(tree, wanted, wait_s)
    _tell_end(name, how, json_file)
    if wait_s and not how:
        raise click.exceptions.Exit(1)


@click.command()
@flow_name
@in_cluster
@json_option
def cancel(place: ClusterAddress, name: str, json_file: Path | None) -> None:
    """End the flow NAME at once.

    What is under way is not delivered; it is replayed when the flow is submitted again.
    """
    with place.opened() as tree:
        wanted = submission_of(tree, name)
        if fail(tree, wanted, CANCELLED, how := "cancelled by a command"):
            with suppress(RunReplaced):  # it is over, and was submitted again at once
                change(
                    tree, name, lambda before: replace(before, wish=DesiredState.CANCEL), wanted.run
                )
        else:
            how = _end_of(tree, wanted, WAIT_S)
    _tell_end(name, how, json_file)


@click.command()
@flow_name
@click.argument("nodes", metavar="N", type=click.IntRange(1, 64))
@in_cluster
@wait_option
@json_option
def rescale(
    place: ClusterAddress, name: str, nodes: int, wait_s: float, json_file: Path | None
) -> None:
    """Let the flow NAME have N nodes, without an end.

    Other nodes, at agents with free slots, copy its state while it runs; then they take over. What
    is delivered is the same, in the same order.
    """
    with place.opened() as tree:
        wanted = rescale_flow(tree, name, nodes)
        give_up_at = monotonic() + wait_s
        while True:
            state = registry_of(tree, name)
            layout = wanted.layout_in(state)
            if len(layout) == nodes or monotonic() >= give_up_at:
                break
            if ended_by(state, wanted):
                raise StateMismatch(f"flow {name!r} has ended with {counted(len(layout), 'node')}")
            now = submission_of(tree, name)
            if now.run != wanted.run:
                raise RunReplaced(name)
            if now.wanted not in (0, nodes):
                raise Unavailable(
                    f"flow {name!r} keeps its {counted(len(layout), 'node')}: another command has "
                    "asked for that, or a new node cannot start; see the log of its agent"
                )
            sleep(LOOK_EVERY_S)
    places = [wanted.place_of(number) for number in layout]
    done = len(layout) == nodes
    write_json(json_file, {"name": name, "done": done, "nodes": places, "error": None})
    if done:
        click.echo(f"flow {name} has {counted(nodes, 'node')}, at {', '.join(places)}")
    else:
        click.echo(f"flow {name} is to have {counted(nodes, 'node')}; `driftline status {name}` "
                   "shows how far it is")  # fmt: skip
        if wait_s:
            raise click.exceptions.Exit(1)


@click.command()
@flow_name
@in_cluster
@json_option
def remove(place: ClusterAddress, name: str, json_file: Path | None) -> None:
    """Forget the flow NAME, which is over, or damaged: its places, and the record of its state.

    Its files stay on the hosts of its agents: remove them before a flow of the same name begins
    anew there.
    """
    with place.opened() as tree:
        submission = remove_flow(tree, name)
    output = None if submission is None else submission.output
    places = _agents_of(submission)
    write_json(json_file, {"name": name, "agents": places, "output": output, "error": None})
    click.echo(f"flow {name} is removed; its files stay. Before another flow of this name begins")
    where = ", ".join(places) or "each agent"
    click.echo(f"  remove the directory flows/{name} in the --state of {where}")
    if submission is not None and submission.consumer:
        click.echo(f"  remove the --state of `driftline serve --name {name}`")
    else:
        click.echo(f"  remove {output or 'its outputs'}")


def _agents_of(submission: Submission | None) -> list[str]:
    return [] if submission is None else sorted({*submission.nodes, *submission.fronts})


def _end_of(tree: ZooKeeperTree, submission: Submission, wait_s: float) -> str:
    """Return how a run ended; "" if it does not end within `wait_s`.

    Raises Unavailable if it failed, RunReplaced if another one has begun.
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
        sleep(LOOK_EVERY_S)


def _tell_troubles(tree: ZooKeeperTree, submission: Submission) -> None:
    """Print what keeps a flow from running, and therefore from draining."""
    layout = submission.layout_in(registry_of(tree, submission.name))
    found = troubles(submission, layout, agents(tree))
    for text in found:
        complain(f"flow {submission.name} waits: {text}")
    if found:
        complain(f"waiting for its end; `driftline cancel {submission.name}` ends it at once")


def _tell_end(name: str, how: str, json_file: Path | None) -> None:
    write_json(json_file, {"name": name, "ended": bool(how), "how": how or None, "error": None})
    if how:
        click.echo(f"flow {name} is over: {how}")
    else:
        click.echo(
            f"flow {name} is asked to end, and has not yet; `driftline status {name}` shows how "
            f"far it is, and `driftline cancel {name}` ends it at once"
        )
