"""The commands `driftline spark ...`. Only a command that runs starts Spark, not its `--help`."""

from __future__ import annotations

import click

from driftline.pipeline.commands.flows import audit, run
from driftline.pipeline.commands.records import corpus, latency


@click.group()
def spark() -> None:
    """Run flows on Spark: history, proof, and scale beyond the nodes' machines."""


for command in (run, audit, corpus, latency):
    spark.add_command(command)
