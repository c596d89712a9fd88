"""Careless functions in real processes that are killed: outputs equal the reference."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from driftline.simulation.scenarios.flows import records
from tests.careless.flows import ALL
from tests.deploy.local.command import driftline

RECORDS = 300

CASES = [
    ("mutable_value", "2", "speculative"),
    ("odd_keys", "3", "buffered"),
    ("sets", "2", "speculative"),
]
"""A mutated state, equal keys of different types, and the order of a set.

The simulation also runs the other flows.
"""


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("careless") / "records.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records(Random(1), RECORDS, 0)))
    return path


def driftline_run(flow: str, documents: Path, output: Path, *options: str) -> list[str]:
    """Return the output of a run, with dead letters, merged by label.

    The reference runs in its own process, too: sets have another order in the test's process.
    """
    arguments = "--input", documents, "--output", output, "--on-error", "dead-letter"
    done = driftline("run", ALL[flow], *arguments, *options)
    assert done.returncode == 0, done.stderr
    lines = [line for file in output.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(lines, key=lambda line: list(json.loads(line)["t"]))


@pytest.mark.parametrize(("flow", "nodes", "ordering"), CASES)
def test_run_with_kills_equals_the_reference(
    documents: Path, tmp_path: Path, flow: str, nodes: str, ordering: str
) -> None:
    wanted = driftline_run(flow, documents, tmp_path / "reference", "--reference")
    options = ["--nodes", nodes, "--ordering", ordering, "--kill-every", "2"]
    options += ["--max-in-flight", "64"]
    assert driftline_run(flow, documents, tmp_path / "run", *options) == wanted
