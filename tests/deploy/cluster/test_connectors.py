"""Live sources and sinks of user code in a cluster, without mocks."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from tests.deploy.cluster.machine import Machine
from tests.zookeepers import Ensemble

DOCUMENTED = Path(__file__).resolve().parents[3] / "docs" / "reference" / "sinks.md"

SHOP = """
import time

from driftline import Flow
from driftline.connectors import LiveSource, Record

flow = Flow("double")
flow.source("numbers").map(lambda n: 2 * n).key_by(lambda n: n).distinct().sink("doubled")


class Numbers(LiveSource):
    name = "numbers"

    def start(self, offsets):
        self.next = offsets.get("all", -1) + 1

    def poll(self, timeout_s):
        if self.next == 150:
            return None
        time.sleep(0.01)
        self.next += 1
        return [Record("all", self.next - 1, self.next - 1)]
"""


def rows(database: Path) -> list[tuple[tuple[int, ...], int]]:
    """Return the outputs in label order; empty before the sink has created its table."""
    if not database.exists():
        return []
    connection = sqlite3.connect(database, timeout=60)
    try:
        found = connection.execute("SELECT label, value FROM outputs").fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()
    return sorted((tuple(json.loads(label)), json.loads(value)) for label, value in found)


def test_flow_with_a_live_source_and_a_sink_survives_its_agents(
    tmp_path: Path, zookeeper: Ensemble
) -> None:
    database = tmp_path / "outputs.db"
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENTED.read_text(), re.DOTALL)
    [sink] = [block for block in blocks if "class SqliteConsumer" in block]
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "shop_sink.py").write_text(sink.replace("outputs.db", str(database)))
    with Machine(tmp_path, zookeeper) as machine:
        machine.command(
            "submit", "shop.py:flow", "--nodes", 2,
            "--input", "python:shop.py:Numbers", "--output", "python:shop_sink.py:outputs",
        )  # fmt: skip
        for count, agent in ((30, "node"), (90, "front")):
            machine.until(lambda: len(rows(database)) >= count, f"{count} outputs")  # noqa: B023
            machine.kill(agent)
            machine.start(agent)
        machine.over("double")
        machine.all_run()
        assert [value for _, value in rows(database)] == [2 * n for n in range(150)]
        assert machine.flow("double")["output"].endswith("shop_sink.py:outputs")
        assert "complete" in machine.command("verify", "double")
