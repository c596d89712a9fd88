"""The commands `driftline submit` and `driftline restore`: flows begin or go on in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click

from driftline.deploy.cluster.submissions import agents, registry_of
from driftline.deploy.cluster.submitting import Order, name_for, submit
from driftline.deploy.cluster.wheels import imported
from driftline.deploy.commands.places import Place, in_cluster
from driftline.deploy.host.config import Reading
from driftline.deploy.host.limits import Limits
from driftline.deploy.parties.window import WINDOW
from driftline.engine.flow.loading import load_flow
from driftline.engine.policy import ORDERINGS, POLICIES, policy
from driftline.engine.snapshots.fitting import NOTHING, Beginning
from driftline.engine.sources.record import Shape
from driftline.engine.texts import complain
from driftline.engine.ui.options import (
    flow_argument,
    inputs_option,
    json_option,
    on_error_option,
    reading_options,
    renamings,
)
from driftline.engine.ui.results import write_json

Submitting = Callable[..., None]


def _ordering(command: Submitting) -> Submitting:
    """Give a command the options of a flow in a cluster; its argument `begin` submits one."""

    @flow_argument
    @in_cluster
    @inputs_option(
        "An input, as for `driftline run`; its files are on the host of its front. Any "
        "number of times."
    )
    @click.option("--name", default="", metavar="NAME",
                  help="Name of the flow in the cluster.  [default: that of the flow]",
                  )  # fmt: skip
    @click.option("--output", required=True, metavar="DIR", type=click.Path(path_type=Path),
                  help="Absolute path of a directory, on each host of a node, for its outputs.",
                  )  # fmt: skip
    @click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 64),
                  help="Node processes.")  # fmt: skip
    @click.option("--policy", "policy_name", default="exactly-once", show_default=True,
                  type=click.Choice(list(POLICIES)), help="Guarantee of the flow.",
                  )  # fmt: skip
    @click.option("--ordering", default="speculative", show_default=True,
                  type=click.Choice(ORDERINGS), help="How label order is kept.")  # fmt: skip
    @click.option("--checkpoint-ms", default=1000, show_default=True,
                  type=click.IntRange(1, 3_600_000), help="Time between snapshots.")  # fmt: skip
    @on_error_option()
    @reading_options()
    @click.option("--window", default=WINDOW, show_default=True, type=click.IntRange(1),
                  help="Records of a source that may be under way.")  # fmt: skip
    @click.option("--spares", default=0, show_default=True, type=click.IntRange(0, 8),
                  help="Processes that each agent for nodes or fronts keeps ready.")  # fmt: skip
    @click.option("--wheel", metavar="FILE",
                  type=click.Path(path_type=Path, exists=True, dir_okay=False),
                  help="A wheel that has FLOW, of Python alone: it is sent to every host.",
                  )  # fmt: skip
    @click.option("--accept-changed-code", is_flag=True,
                  help="Go on though the code of operators has changed: what is there stays.",
                  )  # fmt: skip
    @click.option("--let-anyone-send", is_flag=True,
                  help="Let an input listen where other machines reach it, without keys.",
                  )  # fmt: skip
    @json_option
    @wraps(command)
    def with_order(
        place: Place,
        flow: str,
        inputs: tuple[str, ...],
        name: str,
        output: Path,
        nodes: int,
        policy_name: str,
        ordering: str,
        checkpoint_ms: int,
        dead_letters: bool,
        shape: Shape,
        window: int,
        spares: int,
        wheel: Path | None,
        accept_changed_code: bool,
        let_anyone_send: bool,
        json_file: Path | None,
        **others: object,
    ) -> None:
        if not output.is_absolute():
            raise click.BadParameter(
                f"{output} is no absolute path: it has to be right on every host of a node",
                param_hint="--output",
            )

        def begin(beginning: Beginning) -> None:
            with imported(wheel):
                loaded = load_flow(flow)
            shaped = shape.id_field, shape.text_field, shape.sections
            order = Order(
                name or name_for(loaded),
                flow,
                Reading(inputs, *shaped, window, let_anyone_send),
                output,
                nodes,
                policy(policy_name, ordering),
                checkpoint_ms / 1000,
                dead_letters,
                Limits(),
                spares,
                accept_changed_code,
                beginning,
                wheel,
            )
            with place.opened() as tree:
                made = submit(tree, loaded, order)
                layout = made.layout_in(registry_of(tree, made.name))
                alive = {agent.name for agent in agents(tree)}
            places = [made.place_of(node) for node in layout]
            if made.wanted:
                places = list(made.nodes[-made.wanted :])
            told = {"name": made.name, "run": made.run, "nodes": places, "fronts": made.fronts}
            write_json(json_file, told | {"error": None})
            click.echo(
                f"flow {made.name} is submitted: nodes at {', '.join(places)}; fronts at "
                f"{', '.join(made.fronts)}; outputs in {made.output}"
            )
            for agent in sorted({*places, *made.fronts} - alive):
                complain(f"note: agent {agent} is away: the flow waits for it")

        command(begin=begin, **others)

    return with_order


@click.command("submit")
@_ordering
def submit_flow(begin: Callable[[Beginning], None]) -> None:
    """Run FLOW in the cluster, until its inputs end or `driftline stop`.

    FLOW is a module or a .py file, which every host has, or that --wheel sends. The flow gets
    places at agents that have free slots, and keeps them: after its end, the same command goes on
    with its state.
    """
    begin(NOTHING)


@click.command("restore")
@click.argument("savepoint", metavar="SAVEPOINT", type=click.Path(path_type=Path, exists=True))
@click.option("--drop-state", "drop", multiple=True, metavar="NAME",
              help="Do without the state of an operator, which the flow may not have any more; "
              "OPERATOR.STATE: without one of its states. Any number of times.")  # fmt: skip
@click.option("--rename-state", "rename", multiple=True, metavar="OLD=NEW", callback=renamings,
              help="The operator OLD of the savepoint is NEW in the flow; so for a source. Any "
              "number of times.")  # fmt: skip
@_ordering
def restore_flow(
    begin: Callable[[Beginning], None],
    savepoint: Path,
    drop: tuple[str, ...],
    rename: tuple[tuple[str, str], ...],
) -> None:
    """Begin FLOW in the cluster from SAVEPOINT, a directory that every host reads by the same path.

    A path that is not absolute is one of the working directory here.

    The flow may have other operators than the one that made the savepoint, and any number of flows
    may begin from the same one.
    """
    begin(Beginning(str(savepoint.resolve()), drop, rename))
