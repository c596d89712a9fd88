"""Every command that takes a FLOW takes a function that makes one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from driftline.deploy.commands.run import run
from driftline.deploy.commands.savepoint import savepoint
from driftline.deploy.graph import graph
from driftline.engine.errors import FlowError
from driftline.simulation.command import simulate

MODULE = """
import operator
from driftline import Flow, ReducingState

def count(record, total):
    return record["key"], total.add(1)

def counts(shown: str = "counts") -> Flow:
    flow = Flow(shown)
    keyed = flow.source("lines").key_by("key")
    keyed.scan(count, ReducingState("n", operator.add)).sink()
    return flow

class NotOne: ...
"""


@pytest.fixture
def where(tmp_path: Path) -> str:
    path = tmp_path / "counting.py"
    path.write_text(MODULE)
    return str(path)


@pytest.mark.parametrize("name", ["", ":counts"])
def test_a_run_and_what_comes_before_and_after_it(name: str, where: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"key": 1}\n{"key": 2}\n{"key": 1}\n')
    invoke = CliRunner().invoke
    assert "lines" in invoke(graph, [where + name]).output
    simulated = invoke(simulate, [where + name, "--input", str(source), "--seed", "1"])
    assert simulated.exit_code == 0, simulated.output
    output, saved = tmp_path / "out", tmp_path / "saved"
    command = [where + name, "--input", str(source), "--output", str(output)]
    done = invoke(run, [*command, "--checkpoint-ms", "3600000"])
    assert done.exit_code == 0, done.output
    [file] = output.glob("output-*.jsonl")
    assert [line.partition('"value": ')[2] for line in file.read_text().splitlines()] == [
        "[1, 1]}", "[2, 1]}", "[1, 2]}",
    ]  # fmt: skip
    state = output / ".driftline" / "state"
    made = invoke(savepoint, [where + name, "--state", str(state), "--output", str(saved)])
    assert made.exit_code == 0, made.output
    assert "the state before record 4" in made.output


def test_what_is_none_is_told_of(where: str) -> None:
    refused = CliRunner().invoke(graph, [f"{where}:NotOne"])
    assert isinstance(refused.exception, FlowError)
    assert "NotOne is a class, not a Flow" in str(refused.exception)
