"""A run with dead letters that puts nothing out, as nothing that it read was good, says so."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from driftline import Flow, run
from tests.deploy.local.test_run_command import driftline

FLOW = """
from typing import NamedTuple
from driftline import Flow, ReducingState

class Payment(NamedTuple):
    account: str
    amount: int

def pay(record: dict[str, str]) -> Payment:
    return Payment(record["text"], 1)

flow = Flow("payments")
paid = flow.source("lines").map(pay).key_by(lambda payment: payment.account)
paid.scan(lambda payment, total: total.add(1), ReducingState("total", int.__add__)).sink()
"""


@pytest.mark.parametrize("mode", [["--reference"], []], ids=["reference", "nodes"])
def test_a_run_without_a_good_record_warns(mode: list[str], tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"}\nbad\n')
    done = driftline(
        "run", tmp_path / "flow.py", "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out",
        "--on-error", "dead-letter", "--log-json", *mode,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stderr.splitlines()]
    [warning] = [each for each in told if each["event"] == "all-set-aside"]
    assert warning["level"] == "warning"
    directory = str(tmp_path / "out" / "dead-letters")
    counts = {"records": 2, "dead_letters": 2, "bad_records": 1}
    assert warning["fields"] == {**counts, "directory": directory}
    assert "there is no output" in warning["message"]
    letters = (tmp_path / "out" / "dead-letters").glob("[0-9r]*.jsonl")
    for letter in (line for file in letters for line in file.read_text().splitlines()):
        assert "a NamedTuple arrives as a plain tuple" in json.loads(letter)["value"]["error"]


@pytest.mark.parametrize(
    ("records", "warns"), [([0, 0], True), ([0, 1], False), ([], False), ([-1, 0], False)]
)
def test_a_run_in_this_process_warns_only_if_nothing_was_good(
    records: list[int], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "driftline")
    flow = Flow("divided")
    flow.source("numbers").map(lambda n: 1 // n).filter(lambda n: n > 0).sink()
    run(flow, [records], [], dead_letters=True)
    assert ("there is no output" in caplog.text) == warns
