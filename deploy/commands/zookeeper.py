"""Command `driftline zookeeper`: run a ZooKeeper server for development."""

from __future__ import annotations

import json
from pathlib import Path

import click

from driftline.deploy.runtime.metrics.endpoint import PORT_MAX
from driftline.deploy.runtime.signals import Signals
from driftline.deploy.zookeeper import LOOPBACK, ZooKeeperServer


@click.command()
@click.option("--data", required=True, type=click.Path(path_type=Path, file_okay=False),
              metavar="DIR", help="Directory for the data and logs of the server.")  # fmt: skip
@click.option("--port", default=2181, show_default=True, type=click.IntRange(0, PORT_MAX),
              help="Port for clients; 0 takes a free port.")  # fmt: skip
@click.option("--host", default=LOOPBACK, show_default=True,
              help="Address to listen on. Any client that reaches it can read and change "
                  "everything.",
              )  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the address line as a JSON object.")
def zookeeper(data: Path, port: int, host: str, as_json: bool) -> None:
    """Run a ZooKeeper server on this machine, for development, until Ctrl-C or SIGTERM.

    Once the server is ready, the command prints one line: the address for clients. The data stay in
    --data: the same command starts with them again. The server is part of PySpark (`pip install
    'driftline[spark]'`) and needs Java.
    """
    with Signals(), ZooKeeperServer(data, host=host, port=port) as server:
        server.wait_until_ready()
        if as_json:
            click.echo(json.dumps({"connect": server.address, "pid": server.pid}))
        else:
            click.echo(f"ZooKeeper serves at {server.address}")
        server.wait()
