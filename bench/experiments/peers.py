"""The peers of a service, under its load: one after the other, each in a process of its own."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from driftline.bench.experiments.service import told_of
from driftline.bench.measuring.load import Load, Observed
from driftline.bench.systems.peers import redis
from driftline.bench.systems.peers.process import PEERS
from driftline.deploy.host.children import child

BEYOND_S = 300.0
"""How much longer than the load a peer may take, which may have fallen far behind."""


def measure_peers(load: Load, console: Console) -> dict[str, Observed]:
    """Observe each peer; one that cannot be measured says why."""
    found = {}
    with TemporaryDirectory(prefix="driftline-bench-") as directory:
        file = Path(directory) / "load.json"
        load.write(file)
        for name in PEERS:
            reason = missing(name)
            observed = Observed(skipped=reason) if reason else _observe(name, file, load)
            console.print(f"{name}: {told_of(observed)}", highlight=False, markup=False)
            found[name] = observed
    return found


def missing(name: str) -> str:
    """Why a peer cannot be measured here; "" if it can."""
    if name == "redis-search":
        return redis.missing()
    if name.startswith("tantivy") and find_spec("tantivy") is None:
        return "not installed: pip install 'driftline[bench]'"
    return ""


def _observe(name: str, file: Path, load: Load) -> Observed:
    try:
        done = subprocess.run(
            child.command("driftline.bench.systems.peers.process", name, file),
            stdout=subprocess.PIPE,
            env=child.environment(),
            timeout=load.ends_s + BEYOND_S,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return Observed(skipped=f"it has not ended within {BEYOND_S:g} s after the load")
    if done.returncode:
        return Observed(skipped="it has failed; its own messages are above")
    return Observed.of_json(done.stdout)
