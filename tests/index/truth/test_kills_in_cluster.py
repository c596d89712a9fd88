"""Index on a cluster under load, whose processes, agents and command are killed continually.

SOAK_MINUTES=10 pytest -m soak -n 0 -s tests/index/truth/test_kills_in_cluster.py
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from driftline.deploy.runtime.sockets.transport import TransportConfig
from tests.deploy.cluster.machine import COMMAND, Machine
from tests.index.truth import samples
from tests.index.truth.service import FaultInjector, ServiceProcess, processes_of
from tests.index.truth.test_kills import PAUSE_S, run_under_faults
from tests.zookeepers import Ensemble

AGENTS = "node", "master"


class ClusterService(ServiceProcess):
    """Service whose master and nodes are children of agents."""

    def __init__(self, machine: Machine, *options: str) -> None:
        all_options = *machine.place, "--name", "web", *options
        super().__init__(machine.folder / "state", *all_options)
        self.machine = machine

    def processes(self) -> dict[str, psutil.Process]:
        found = super().processes()
        for agent in AGENTS:
            with suppress(psutil.NoSuchProcess):
                found |= processes_of(self.machine.pid(agent))
        return found


class ClusterFaultInjector(FaultInjector):
    """Fault injector that also kills agents with their children, and rescales the flow."""

    def __init__(self, service: ClusterService, seed: int) -> None:
        super().__init__(service, seed, PAUSE_S)
        self._machine = service.machine
        self._nodes = 2

    def draw_faults(self) -> list[tuple[str, str]]:
        return [*super().draw_faults(), *(("agent", name) for name in AGENTS), ("rescale", "web")]

    def inject(self, fault: str, name: str) -> bool:
        if fault == "agent":
            self._machine.kill(name)
            self._machine.start(name)
        elif fault == "rescale":
            self._nodes = 3 - self._nodes
            with suppress(AssertionError):  # an earlier rescaling is still in progress
                self._machine.command("rescale", name, self._nodes, "--wait", 0)
        else:
            return super().inject(fault, name)
        return True


@pytest.mark.soak
def test_answers_equal_a_sequential_index_on_a_cluster_with_keys(
    tmp_path: Path, zookeeper: Ensemble
) -> None:
    keys = tmp_path / "keys"
    make_keys = COMMAND, "keys", str(keys), "--hosts", "a", "--consumer", "journal=*"
    subprocess.run(make_keys, check=True)
    network = "--bind", "127.0.0.1", "--keys", str(keys / "a.key")
    client_network = TransportConfig("tcp", "127.0.0.1", keys=str(keys / "a.key"))
    with Machine(tmp_path, zookeeper, AGENTS, network, network=client_network) as machine:
        _run(machine, tmp_path, 4, *network, "--journal-key", str(keys / "journal.key"))


def _run(machine: Machine, tmp_path: Path, seed: int, *network: str) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(samples.SCHEMA)
    service = ClusterService(
        machine, "--nodes", "2", "--searchers", "2", "--schema", str(schema), *network
    )
    seconds = 60 * float(os.environ.get("SOAK_MINUTES", "10"))
    try:
        service.start()
        run_under_faults(service, ClusterFaultInjector(service, seed), tmp_path, seconds, seed)
    finally:
        service.close()
