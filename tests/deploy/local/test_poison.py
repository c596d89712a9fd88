"""Records that cannot be processed, and large values of functions, in all drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from driftline import Flow, FlowTest, run, run_reference
from driftline.engine.errors import InputError, PayloadError
from driftline.engine.sources.record import RAW_CHARS
from tests.connectors.poison import POISON
from tests.deploy.local.command import ROOT, call

FLOW = """
from driftline import Flow
flow = Flow("ids")
flow.source("records").key_by("id").process(lambda context, record: [record["id"]]).sink()
"""

LINES = "".join(json.dumps(record) + "\n" for record in [{"id": 1}, *POISON.values(), {"id": 6}])


class PoisonRun:
    """Calls of `driftline run` in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "flow.py").write_text(FLOW)
        (directory / "in.jsonl").write_text(LINES)

    def arguments(self, output: str, input_file: str, *options: str) -> list[str]:
        flow, out = self.directory / "flow.py", self.directory / output
        return ["run", str(flow), "--input", input_file, "--output", str(out), *options]

    def run(self, output: str, input_file: str, *options: str) -> subprocess.CompletedProcess[str]:
        return call(*self.arguments(output, str(self.directory / input_file), *options))

    def run_fed(self, output: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run over standard input."""
        return subprocess.run(
            [sys.executable, "-m", "driftline", *self.arguments(output, "-", *options)],
            cwd=ROOT, input=LINES, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def lines(self, output: str, pattern: str) -> list[str]:
        files = (self.directory / output).glob(pattern)
        return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.fixture
def command(tmp_path: Path) -> PoisonRun:
    return PoisonRun(tmp_path)


def test_poison_records_become_abbreviated_dead_letters_as_in_reference(
    command: PoisonRun,
) -> None:
    options = "--on-error", "dead-letter"
    assert command.run("wanted", "in.jsonl", "--reference", *options).returncode == 0
    for _ in range(2):  # the second call finds the logs and dead letters of the first
        done = command.run_fed("out", *options)
        assert done.returncode == 0, done.stderr
        assert command.lines("out", "*.jsonl") == command.lines("wanted", "*.jsonl")
        aside = command.lines("out", "dead-letters/input-0.jsonl")
        wanted = command.lines("wanted", "dead-letters/input-0.jsonl")
        assert [line.replace("standard input", "in.jsonl") for line in aside] == wanted
    assert [json.loads(line)["record"] for line in aside] == [2, 3, 4, 5]
    assert max(map(len, aside)) < 2 * RAW_CHARS


def test_run_logs_its_dead_letters_and_next_call_counts_only_new_ones(
    command: PoisonRun,
) -> None:
    flow = FLOW.replace('[record["id"]]', '[6 // (record["id"] - 6)]')
    (command.directory / "flow.py").write_text(flow)
    options = "--on-error", "dead-letter", "--log-json", "--log-level", "debug"
    report_file = command.directory / "report"

    def call() -> tuple[list[dict[str, object]], dict[str, object], dict[str, object]]:
        """Return the dead letter warnings, the last figures and the report of a call."""
        done = command.run("out", "in.jsonl", *options, "--json", str(report_file))
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        warnings = [line["fields"] for line in lines if line["event"] == "dead-letters"]
        figures = [line["fields"] for line in lines if line["event"] == "progress"]
        return warnings, figures[-1], json.loads(report_file.read_text())

    warnings, figures, report = call()
    [failed] = [fields for fields in warnings if "operator" in fields]
    assert (failed["count"], failed["label"]) == (1, "[6, 0]")
    assert "ZeroDivisionError" in str(failed["error"])
    assert 'record["id"] - 6' in str(failed["line"])
    [bad] = [fields for fields in warnings if "file" in fields]
    assert bad["file"] == "in.jsonl"
    for found in (figures, report):
        assert (found["dead_letters"], found["bad_records"]) == (1, 4)
    with (command.directory / "in.jsonl").open("a") as file:
        file.write('{"id": 7}\n{"id": 6}\n')
    warnings, figures, report = call()
    assert [fields["label"] for fields in warnings] == ["[8, 0]"]
    for found in (figures, report):
        assert (found["dead_letters"], found["bad_records"]) == (1, 0)


def test_dead_letter_holds_the_full_record_and_can_be_resent(
    command: PoisonRun,
) -> None:
    flow = FLOW.replace('[record["id"]]', '[1 // (record["id"] - 2)]')
    (command.directory / "flow.py").write_text(flow)
    large = {"id": 2, "text": "слово " * 100_000, "tags": [1, {"a": None}]}
    lines = [json.dumps(record, ensure_ascii=False) for record in ({"id": 1}, large, {"id": 3})]
    (command.directory / "in.jsonl").write_text("\n".join(lines))
    options = "--on-error", "dead-letter"
    assert command.run("wanted", "in.jsonl", "--reference", *options).returncode == 0
    done = command.run("out", "in.jsonl", *options)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stderr.splitlines())) < 1000
    for pattern in ("*.jsonl", "dead-letters/*.jsonl"):
        assert command.lines("out", pattern) == command.lines("wanted", pattern)
    [letter] = command.lines("out", "dead-letters/0.jsonl")
    assert json.loads(letter)["value"]["record"] == large
    (command.directory / "flow.py").write_text(FLOW)
    again = json.dumps(json.loads(letter)["value"]["record"])
    (command.directory / "again.jsonl").write_text(again)
    assert command.run("mended", "again.jsonl", "--reference").returncode == 0
    assert [json.loads(line)["value"] for line in command.lines("mended", "*.jsonl")] == [2]


def ids() -> Flow:
    flow = Flow("ids")
    flow.source("records").key_by("id").process(lambda context, record: [record["id"]]).sink()
    return flow


class UserSource:
    """User-defined source."""

    def __init__(self, records: Iterable[object]) -> None:
        self.name = "given"
        self.records = list(records)

    def read(self, start: int) -> Iterator[tuple[int, object]]:
        yield from list(enumerate(self.records, 1))[start - 1 :]

    def progress(self) -> None:
        return None

    def identity(self) -> str:
        return "given"


@pytest.mark.parametrize("kind", POISON)
def test_poison_records_from_python_are_bad_records(kind: str) -> None:
    records = [{"id": 1}, POISON[kind], {"id": 3}]
    wanted = list(run_reference(ids(), [records], dead_letters=True))
    assert [item.value for item in wanted] == [1, 3]
    for source in (records, iter(records), UserSource(records)):
        assert list(run(ids(), {"records": source}, dead_letters=True)) == wanted
    reasons = []
    for driver in (run_reference, run):
        with pytest.raises(InputError) as raised:
            list(driver(ids(), {"records": records}))
        assert (raised.value.file, raised.value.record) == ("source 'records'", 2)
        reasons.append(str(raised.value))
    assert reasons[0] == reasons[1]


@pytest.mark.parametrize("kind", POISON)
def test_flow_test_rejects_poison_records(kind: str) -> None:
    with FlowTest(ids()) as test:
        with pytest.raises(PayloadError, match="source 'records', record 1: "):
            test.send(POISON[kind])
        test.send({"id": 7})
        assert test.outputs() == [7]
