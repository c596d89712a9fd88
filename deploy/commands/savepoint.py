"""Command `driftline savepoint`: write a flow's last snapshot as a savepoint."""

from __future__ import annotations

from pathlib import Path

import click

from driftline.connectors.inputs import is_named_address
from driftline.deploy.cluster.savepoints import save
from driftline.deploy.cluster.submissions import submission_of
from driftline.deploy.cluster.wheels import importable_submission
from driftline.deploy.commands.cluster_options import (
    ClusterAddress,
    optionally_in_cluster,
    transport_options,
)
from driftline.deploy.local.directories.leftovers import short_folder
from driftline.deploy.local.report import EndStatus
from driftline.deploy.local.savepoints import save_run
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.flow.loading import load_flow
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.texts import counted, format_time
from driftline.engine.ui.options import json_option, refuse_options
from driftline.engine.ui.results import write_json


@click.command()
@click.argument("flow", metavar="FLOW")
@click.option("--state", type=click.Path(path_type=Path, exists=True), metavar="DIR",
              help="State directory of a finished or drained run of FLOW.")  # fmt: skip
@click.option("--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="A new directory for the savepoint.")  # fmt: skip
@optionally_in_cluster
@transport_options
@json_option
def savepoint(
    flow: str,
    state: Path | None,
    output: Path,
    cluster_address: ClusterAddress | None,
    network: TransportConfig,
    json_file: Path | None,
) -> None:
    """Write the last snapshot of a flow as a savepoint, a directory of files.

    For a run on this machine that has ended: FLOW is its module or .py file, and --state its state
    directory. The savepoint contains all records if the run reached the end of its input or was
    drained by a signal. After a crash or an error, resume the run and drain it first.

    For a flow on a cluster (--zookeeper): FLOW is its name there. The flow keeps running.

    With --from-savepoint, `driftline run` and `driftline submit` start from a savepoint, even if
    the flow has changed.
    """
    if state is None and cluster_address is None:
        raise click.UsageError(
            "give --state DIR for a finished run, or --zookeeper for a flow in a cluster"
        )
    if state is not None:
        refuse_options(["--zookeeper"], "with --state, which is for a finished run")
        saved, ending = save_run(state, load_flow(flow), output)
        _print_savepoint(saved, output, json_file)
        if ending not in (EndStatus.COMPLETE, EndStatus.DRAINED):
            click.echo(
                "The run did not end normally: later records are not in the savepoint, though some "
                "of their outputs may be delivered. To save all records, let the run continue to "
                "its end, or drain it with SIGTERM, and make another savepoint."
            )
    elif cluster_address is not None:
        with cluster_address.open_tree() as tree, short_folder() as sockets:
            submission = submission_of(tree, flow)
            with importable_submission(tree, submission, sockets / "wheels"):
                loaded = load_flow(submission.flow)
            saved = save(tree, flow, loaded, output, sockets, network)
        _print_savepoint(saved, output, json_file)
        if any(map(is_named_address, submission.reading.inputs)):
            click.echo(
                f"Records that producers send after the savepoint are only in flow {flow}. To "
                "replace it by another flow: stop the producers, make a savepoint once all "
                f"outputs are delivered, and run `driftline stop {flow}`. Then start the "
                "producers for the other flow."
            )


def _print_savepoint(saved: Savepoint, output: Path, json_file: Path | None) -> None:
    report = {"savepoint": str(output), "time": saved.time, "files": len(saved.files)}
    write_json(json_file, report | {"error": None})
    files = counted(len(saved.files), "file")
    click.echo(
        f"savepoint written to {output}: the state before {format_time(saved.time)}, {files}"
    )
