"""An index on a cluster under load, whose processes, agents and command are killed all the time.

SOAK_MINUTES=10 pytest -m soak -n 0 -s tests/index/truth/test_kills_in_cluster.py
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.deploy.cluster.machine import Machine
from tests.index.truth import samples
from tests.index.truth.service import Killer, Service, parts_of
from tests.index.truth.test_kills import PAUSE_S, withstand

AGENTS = "node", "master"


class Spread(Service):
    """A service whose master and nodes are children of agents."""

    def __init__(self, machine: Machine, *options: str) -> None:
        super().__init__(machine.folder / "state", *machine.place, "--name", "web", *options)
        self.machine = machine

    def parts(self) -> dict[str, psutil.Process]:
        found = super().parts()
        for agent in AGENTS:
            with suppress(psutil.NoSuchProcess):
                found |= parts_of(self.machine.pid(agent))
        return found


class ClusterKiller(Killer):
    """Kills agents, too, with all that they run, and changes the number of nodes."""

    def __init__(self, service: Spread, seed: int) -> None:
        super().__init__(service, seed, PAUSE_S)
        self._machine = service.machine
        self._nodes = 2

    def deeds(self) -> list[tuple[str, str]]:
        return [*super().deeds(), *(("agent", name) for name in AGENTS), ("rescale", "web")]

    def do(self, deed: str, name: str) -> None:
        if deed == "agent":
            self._machine.kill(name)
            self._machine.start(name)
        elif deed == "rescale":
            self._nodes = 3 - self._nodes
            with suppress(AssertionError):  # an earlier one is on its way
                self._machine.command("rescale", name, self._nodes, "--wait", 0)
        else:
            super().do(deed, name)


@pytest.mark.soak
def test_all_answers_are_those_of_a_sequential_index(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(samples.SCHEMA)
    options = "--nodes", "2", "--searchers", "2", "--schema", str(schema)
    seconds = 60 * float(os.environ.get("SOAK_MINUTES", "10"))
    with Machine(tmp_path, ("master", "node")) as machine:
        service = Spread(machine, *options)
        try:
            service.start()
            withstand(service, ClusterKiller(service, 3), tmp_path, seconds, seed=3)
        finally:
            service.close()
            (tmp_path / "all.log").write_text(machine.logs())
