"""The command `driftline savepoint`."""

from __future__ import annotations

from pathlib import Path

import click

from driftline.deploy.run.savepoints import save_run
from driftline.engine.flow.loading import load_flow
from driftline.engine.ui.options import flow_argument


@click.command()
@flow_argument
@click.option("--state", required=True, type=click.Path(path_type=Path, exists=True),
              metavar="DIR", help="State directory of a run of FLOW that is over.")  # fmt: skip
@click.option("--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="A new directory for the savepoint.")  # fmt: skip
def savepoint(flow: str, state: Path, output: Path) -> None:
    """Write the last snapshot of a run of FLOW as a savepoint, a directory of files.

    `driftline run --from-snapshot` begins a run from it; `driftline spark state` queries it.
    """
    saved = save_run(state, load_flow(flow), output)
    click.echo(f"{output}: the state before time {saved.time}, {len(saved.files)} files")
