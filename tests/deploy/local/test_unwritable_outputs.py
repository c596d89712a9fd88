"""Outputs that JSON cannot hold: they end a run with a remedy, or are dead letters everywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from driftline import Producer, run
from tests.deploy.local.command import ROOT, call
from tests.deploy.local.run_copies import LIMIT_S

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


class Command:
    """Calls of `driftline run` on one flow."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "odd.py").write_text(FLOW)
        self.input = directory / "in.jsonl"
        self.input.write_text("".join(f'{{"n": {n}}}\n' for n in range(1, RECORDS + 1)))

    def words(self, given: str | Path, output: str, *options: str) -> list[str]:
        named = [str(self.directory / "odd.py"), "--input", str(given)]
        out = ["--output", str(self.directory / output)]
        return ["run", *named, *out, *options]

    def run(self, output: str, *options: str) -> subprocess.CompletedProcess[str]:
        return call(*self.words(self.input, output, *options))

    def fed(self, output: str, *options: str) -> tuple[int, str]:
        """A call with a producer that sends all records. Returns its status, and what it said."""
        words = [sys.executable, "-m", "driftline"]
        words += self.words("tcp://127.0.0.1:0", output, *options)
        process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "listening for producers on " in line:
                with Producer(line.strip().rpartition(" ")[2], "p") as producer:
                    for n in range(1, RECORDS + 1):
                        producer.send({"n": n})
                    producer.end()
                break
        said += process.communicate(timeout=LIMIT_S)[1]
        return process.returncode, said

    def lines(self, output: str, patterns: Sequence[str] = PATTERNS) -> dict[str, list[str]]:
        """All lines of each sink, and the dead letters, in label order."""
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

    def wanted(self) -> dict[str, list[str]]:
        done = self.run("wanted", "--reference", "--on-error", "dead-letter")
        assert done.returncode == 0, done.stderr
        return self.lines("wanted")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_with_dead_letters_a_run_gives_the_lines_of_the_reference(command: Command) -> None:
    wanted = command.wanted()
    assert {name: len(lines) for name, lines in wanted.items()} == {
        PAIRS: RECORDS - ODD,
        BARE: RECORDS - ODD,
        LETTERS: 2 * ODD,
    }
    letters = [json.loads(line)["value"] for line in wanted[LETTERS]]
    assert {letter["operator"] for letter in letters} == {"pairs", "bare"}
    assert letters[0]["text"] == "(3, nan)"
    report = command.directory / "report.json"
    done = command.run("out", "--nodes", "2", "--on-error", "dead-letter", "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert command.lines("out") == wanted
    figures = json.loads(report.read_text())
    assert (figures["outputs"], figures["dead_letters"]) == (2 * (RECORDS - ODD), 2 * ODD)
    assert "dead letter" in done.stderr
    in_process = command.directory / "in-process"
    summary = run(f"{command.directory}/odd.py:flow", [command.input], in_process,
                  dead_letters=True)  # fmt: skip
    assert command.lines("in-process") == wanted
    assert (summary.outputs, summary.dead_letters) == (2 * (RECORDS - ODD), 2 * ODD)


def test_producer_run_resumes_with_dead_letters_after_unwritable_output(command: Command) -> None:
    status, said = command.fed("out")
    assert status == 1, said
    for part in ("cannot write the output at label [", "as JSON", "--on-error dead-letter"):
        assert part in said
    assert "Traceback" not in said
    again = call(*command.words("tcp://127.0.0.1:0", "out", "--on-error", "dead-letter"))
    assert again.returncode == 0, again.stderr
    wanted = command.wanted()
    found = command.lines("out")
    assert {name: list(map(_value, lines)) for name, lines in found.items()} == {
        name: list(map(_value, lines)) for name, lines in wanted.items()
    }


def _value(line: str) -> object:
    """What a line says, without its label: records of a producer have other times."""
    value = json.loads(line)["value"]
    if isinstance(value, dict) and "error" in value:
        value["error"] = value["error"].partition(" at label ")[0]
    return value


LAZY = """
from driftline import Flow


class Row(dict):
    def items(self):
        raise OSError("the database is gone")


def row(record):
    return Row(n=record["n"]) if record["n"] % 4 == 0 else {"n": record["n"]}


flow = Flow("lazy")
rows = flow.source("records").map(row, name="row")
rows.sink("rows")
rows.key_by("n").scan(lambda element: element["n"], name="n").sink("numbers")
"""


def test_a_row_whose_items_raise_is_a_failure_of_its_function_and_kills_no_node(
    command: Command,
) -> None:
    (command.directory / "odd.py").write_text(LAZY)
    done = command.run("ended", "--nodes", "2")
    assert done.returncode == 1
    # Of two nodes, each may be the first to tell of a failure.
    assert re.search(r"'row' failed at label \[\d+, 0", done.stderr)
    assert "OSError: the database is gone" in done.stderr
    for part in ("Traceback", "the system", "died"):
        assert part not in done.stderr
