"""What has died is replaced at once, however long its session may be silent."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from tests.deploy.cluster.machine import Machine
from tests.zookeepers import Ensemble

SESSION_S = 60
"""The longest that the server allows, and longer than a machine waits for anything here."""


@pytest.fixture
def machine(
    tmp_path: Path,
    zookeeper: Ensemble,
    monkeypatch: pytest.MonkeyPatch,
) -> Machine:
    monkeypatch.setattr("tests.deploy.cluster.machine.LIMIT_S", 0.7 * SESSION_S)
    return Machine(tmp_path, zookeeper, ("master", "node"), session_s=SESSION_S)


def test_a_spare_becomes_the_front_and_a_standby_leads(machine: Machine) -> None:
    with machine, closing(ZooKeeperTree(machine.zookeeper, SESSION_S)) as tree:
        machine.start("master", "standby")
        machine.start("front", "", "--log-level", "debug")  # so that it tells of its spare
        machine.until(lambda: len(tree.children("agents")) == 4, "all agents")
        given = "--name", "index", "--input", "tcp://127.0.0.1:*", "--output", machine.output
        machine.command("submit", "driftline.index", *given, "--spares", 1)
        machine.until(lambda: len(tree.children("flows/index/masters")) == 2, "both masters")
        machine.until(lambda: "is ready (pid" in machine.log("front"), "the spare of the front")
        process_with("role", "front").kill()
        machine.until(lambda: ", a spare)" in machine.log("front"), "the next front")
        with closing(tree.masters("index", lambda: None)) as masters:
            first, _ = masters.leader()
            process_with("process", first).kill()
            machine.until(lambda: machine.logs().count(" leads now") == 2, "the next master")
            assert masters.leader()[0] not in ("", first)


def process_with(field: str, value: str) -> psutil.Process:
    """The process of a flow whose configuration has this."""
    for each in psutil.Process().children(recursive=True):
        try:
            told = json.loads(each.cmdline()[-1])
        except (ValueError, IndexError, psutil.NoSuchProcess):
            continue
        if isinstance(told, dict) and told.get(field) == value:
            return each
    raise AssertionError(f"no process has the {field} {value}")
