"""The commands `driftline bench ...`.

What a command needs is imported when it runs, so that `--help` is quick and a missing package is
told in one sentence.
"""

from __future__ import annotations

from importlib.util import find_spec

import click

from driftline.bench.commands.comparing import floor, latency, throughput
from driftline.bench.commands.examining import memory, ordering, profile
from driftline.engine.errors import Unavailable


@click.group()
def bench() -> None:
    """Measure Driftline's inverted index, next to the floor.

    The floor is the same job with no guarantees, as fast as Python does it. Whatever else the
    machine does while a benchmark runs is in its figures.
    """
    missing = [name for name in ("matplotlib", "psutil") if find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"the benchmark needs {' and '.join(missing)}: pip install 'driftline[bench]'"
        )


for command in (latency, throughput, ordering, floor, memory, profile):
    bench.add_command(command)
