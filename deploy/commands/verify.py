"""Command `driftline verify`: check the outputs and state of a run, service or flow."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from driftline.deploy.cluster.verification import verify_flow
from driftline.deploy.commands.cluster_options import ClusterAddress, optionally_in_cluster
from driftline.deploy.local.verify import InspectService, Verdict, verify_run
from driftline.engine.errors import InUse
from driftline.engine.texts import escape_lines
from driftline.engine.ui.options import json_option, refuse_options
from driftline.engine.ui.results import write_json

EXIT_STILL_RUNNING = 3
"""Exit status if the run is still active: nothing was checked."""


def verify_command(inspect_service: InspectService) -> click.Command:
    """Return the command `driftline verify`.

    `inspect_service`: inspects the service of a state directory, if any.
    """

    @click.command()
    @click.argument("directory", metavar="DIRECTORY|NAME")
    @click.option("--state", type=click.Path(path_type=Path, exists=True, file_okay=False),
                  metavar="DIR", help="State directory, if it is not beneath the outputs.",
                  )  # fmt: skip
    @optionally_in_cluster
    @json_option
    def verify(
        directory: str,
        state: Path | None,
        cluster_address: ClusterAddress | None,
        json_file: Path | None,
    ) -> None:
        """Check the outputs and the state of a run in DIRECTORY, or the state directory of a
        service. With --zookeeper: check the directories on this host of the flow NAME of a cluster.

        The command verifies all checksums, and that the directories belong together. The last line
        shows how the run ended: at the end of its input, by a signal, by an error, or killed.
        Nothing is changed. Exit status 0: all directories are intact, though the run itself may be
        unfinished or have failed; 1: there are problems, or there is nothing to check; 3: the run
        is still active, and nothing was checked.
        """
        try:
            verdict = _verdict(directory, state, cluster_address, inspect_service)
        except InUse as error:
            write_json(json_file, {"error": str(error)})
            click.echo(f"{error}", err=True)
            raise click.exceptions.Exit(EXIT_STILL_RUNNING) from None
        _print_verdict(verdict, json_file)

    return verify


def _print_verdict(verdict: Verdict, json_file: Path | None) -> None:
    """Print the verdict. Raises Exit, with status 1, if there are problems."""
    for report in verdict.checked:
        result = "DAMAGED" if report.damage else "ok"
        click.echo(f"{result:7}  {report}: {report.summary or 'unreadable'}")
    for text in filter(None, [*verdict.problems, verdict.note, verdict.ending.text]):
        click.echo(escape_lines(text))
    checked = [
        {"role": report.role, "path": report.path, "holds": report.summary, "damage": report.damage}
        for report in verdict.checked
    ]
    write_json(
        json_file,
        {
            "checked": checked,
            "problems": verdict.problems,
            "note": verdict.note,
            "run": verdict.ending.as_json(),
        },
    )
    if verdict.problems:
        raise click.exceptions.Exit(1)


def _verdict(
    target: str,
    state: Path | None,
    cluster_address: ClusterAddress | None,
    inspect_service: InspectService,
) -> Verdict:
    """Verify a directory, or a flow if a cluster is named.

    If only the configuration names a cluster, an existing directory `target` takes precedence.
    """
    path = Path(target)
    if cluster_address is None or (not _has_cluster_option() and path.is_dir()):
        if not path.is_dir():
            raise click.BadParameter(
                f"{target} is not a directory; for a flow of a cluster give its ZooKeeper servers: "
                "--zookeeper HOSTS",
                param_hint="DIRECTORY|NAME",
            )
        return verify_run(path, state, inspect_service)
    refuse_options(["--state"], "for a flow of a cluster: its agents know where their state is")
    with cluster_address.open_tree() as tree:
        return verify_flow(tree, target)


def _has_cluster_option() -> bool:
    """Return whether the command line names a cluster."""
    context = click.get_current_context()
    return context.get_parameter_source("zookeeper") is ParameterSource.COMMANDLINE
