"""The commands `driftline bench ...`.

A command imports its packages when it runs, so that `--help` is fast and the error for a missing
package is one sentence.
"""

from __future__ import annotations

from importlib.util import find_spec

import click

from driftline.bench.commands.comparing import latency, throughput
from driftline.bench.commands.examining import ordering
from driftline.bench.commands.killing import recovery
from driftline.bench.commands.serving import service
from driftline.deploy.host.signals import Signals
from driftline.engine.errors import Unavailable


@click.group()
def bench() -> None:
    """Measure Driftline's inverted index, compared with the floor; and as a service.

    The floor is the same job without guarantees, as fast as Python does it. Other work of the
    machine during a benchmark changes the figures.
    """
    missing = [name for name in ("matplotlib", "psutil") if find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"the benchmark needs {' and '.join(missing)}: pip install 'driftline[bench]'"
        )
    click.get_current_context().with_resource(Signals())  # SIGTERM leaves no directories, either


for command in (latency, throughput, ordering, recovery, service):
    bench.add_command(command)
