"""The command `driftline savepoint`."""

from __future__ import annotations

from pathlib import Path

import click

from driftline.deploy.run.ending import How
from driftline.deploy.run.savepoints import save_run
from driftline.engine.counted import counted
from driftline.engine.flow.loading import load_flow
from driftline.engine.moments import time_in_words
from driftline.engine.ui.options import flow_argument


@click.command()
@flow_argument
@click.option("--state", required=True, type=click.Path(path_type=Path, exists=True),
              metavar="DIR", help="State directory of a run of FLOW that is over.")  # fmt: skip
@click.option("--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="A new directory for the savepoint.")  # fmt: skip
def savepoint(flow: str, state: Path, output: Path) -> None:
    """Write the last snapshot of a run of FLOW as a savepoint, a directory of files.

    A run that has come to the end of its input, or that a signal has ended in good order, has all
    its records in it. After a crash or an error, let the run go on and end in good order first.
    `driftline run --from-snapshot` begins a run from it, also of a changed flow; `driftline spark
    state` queries it.
    """
    saved, how = save_run(state, load_flow(flow), output)
    files = counted(len(saved.files), "file")
    click.echo(f"{output}: the state before {time_in_words(saved.time)}, {files}")
    if how not in (How.COMPLETE, How.ASKED):
        click.echo(
            "The run did not end in good order: records from there on are not in the savepoint, "
            "though it may have delivered outputs of theirs. To have all, let the run go on, and "
            "come to its end or end it with SIGTERM, and make another savepoint."
        )
