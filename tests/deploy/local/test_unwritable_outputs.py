"""Outputs that JSON cannot represent fail a run with a remedy, or become dead letters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from driftline import run
from tests.deploy.local.command import call

FLOW = """
from driftline import Flow

ODD = {3: float("nan"), 5: b"bytes", 7: {1: 1}, 8: {("a", 2): 3}, 10: [float("-inf")]}

flow = Flow("odd")
records = flow.source("records").map(lambda record: record["n"], name="number")
records.map(lambda n: (n, ODD.get(n, "even")), name="odd", fields=("n", "what")).sink("pairs")
records.key_by(lambda n: n % 3).scan(lambda n: ODD.get(n, n), name="keyed").sink("bare")
"""

PATTERNS = PAIRS, BARE, LETTERS = "pairs*.jsonl", "bare*.jsonl", "dead-letters/*.jsonl"

ODD = 5
RECORDS = 12


class UnwritableRun:
    """Calls of `driftline run` on one flow."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "odd.py").write_text(FLOW)
        self.input = directory / "in.jsonl"
        self.input.write_text("".join(f'{{"n": {n}}}\n' for n in range(1, RECORDS + 1)))

    def arguments(self, input_file: str | Path, output: str, *options: str) -> list[str]:
        named = [str(self.directory / "odd.py"), "--input", str(input_file)]
        out = ["--output", str(self.directory / output)]
        return ["run", *named, *out, *options]

    def run(self, output: str, *options: str) -> subprocess.CompletedProcess[str]:
        return call(*self.arguments(self.input, output, *options))

    def lines(self, output: str, patterns: Sequence[str] = PATTERNS) -> dict[str, list[str]]:
        """Return all lines of each sink, and the dead letters, in label order."""
        return {
            pattern: sorted(
                (
                    line
                    for file in (self.directory / output).glob(pattern)
                    for line in file.read_text().splitlines()
                ),
                key=lambda line: json.loads(line)["t"],
            )
            for pattern in patterns
        }

    def expected_lines(self) -> dict[str, list[str]]:
        done = self.run("wanted", "--reference", "--on-error", "dead-letter")
        assert done.returncode == 0, done.stderr
        return self.lines("wanted")


@pytest.fixture
def command(tmp_path: Path) -> UnwritableRun:
    return UnwritableRun(tmp_path)


def test_run_with_dead_letters_equals_reference(command: UnwritableRun) -> None:
    expected_lines = command.expected_lines()
    assert {name: len(lines) for name, lines in expected_lines.items()} == {
        PAIRS: RECORDS - ODD,
        BARE: RECORDS - ODD,
        LETTERS: 2 * ODD,
    }
    letters = [json.loads(line)["value"] for line in expected_lines[LETTERS]]
    assert {letter["operator"] for letter in letters} == {"pairs", "bare"}
    assert letters[0]["text"] == "(3, nan)"
    report = command.directory / "report.json"
    done = command.run("out", "--nodes", "2", "--on-error", "dead-letter", "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert command.lines("out") == expected_lines
    figures = json.loads(report.read_text())
    assert (figures["outputs"], figures["dead_letters"]) == (2 * (RECORDS - ODD), 2 * ODD)
    assert "dead letter" in done.stderr
    in_process = command.directory / "in-process"
    summary = run(f"{command.directory}/odd.py:flow", [command.input], in_process,
                  dead_letters=True)  # fmt: skip
    assert command.lines("in-process") == expected_lines
    assert (summary.outputs, summary.dead_letters) == (2 * (RECORDS - ODD), 2 * ODD)
