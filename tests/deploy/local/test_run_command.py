"""`driftline run` end to end: real processes, real ZeroMQ, real disks, real kill -9."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from driftline.connectors.files import find_sample, open_source
from driftline.engine.sources import strict
from tests.deploy.local.command import call, driftline, lines

BROKEN_FLOW = """
from driftline import Flow

flow = Flow("broken")
flow.source("lines").map(lambda record: 1 // (len(record["text"]) - 3), name="divide").sink()
"""


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return sections of the Wikipedia sample, as JSON lines."""
    path = tmp_path_factory.mktemp("documents") / "sections.jsonl"
    sections = islice(strict(open_source(find_sample(), sections=True).read(1)), 30)
    path.write_text("".join(json.dumps(section) + "\n" for _, section in sections))
    return path


@pytest.fixture(scope="module")
def reference(documents: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the index that the reference interpreter makes of them."""
    output = tmp_path_factory.mktemp("reference")
    done = call("run", "driftline.index", "--input", documents, "--output", output, "--reference")
    assert done.returncode == 0, done.stderr
    return lines(output)


def run_with_kills(documents: Path, output: Path, *options: str) -> list[str]:
    """Run the index on two nodes, one of which is killed every 0.1 s; return its outputs."""
    report = output.with_name("report.json")
    done = driftline(
        "run", "driftline.index", "--input", documents, "--output", output, "--nodes", "2",
        "--max-in-flight", "1", "--snapshot-interval-ms", "200", "--kill-every", "0.1",
        "--json", report, *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["kills"] >= 1
    return lines(output)


def test_outputs_are_unaffected_by_kill_9(
    documents: Path, reference: list[str], tmp_path: Path
) -> None:
    assert run_with_kills(documents, tmp_path / "out") == reference


def test_other_policies_deliver_once_under_kill_9(
    documents: Path, reference: list[str], tmp_path: Path
) -> None:
    def words(found: list[str]) -> Counter[tuple[str, str, str]]:
        values = [json.loads(line)["value"] for line in found]
        return Counter((v["word"], str(v["document"]), str(v["positions"])) for v in values)

    found = run_with_kills(documents, tmp_path / "out", "--policy", "two-phase")
    assert words(found) == words(reference)


def test_error_of_a_function_names_its_record_and_file(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN_FLOW)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("aa\n")
    (tmp_path / "in" / "2.txt").write_text("cccc\nbbb\n")
    options = "--input", tmp_path / "in", "--output", tmp_path / "out"
    done = call("run", tmp_path / "broken.py", *options)
    assert done.returncode == 1
    for part in ("'divide'", "[3, 0]", "ZeroDivisionError", "bbb", "broken.py:5"):
        assert part in done.stderr
    assert f"\n  from: record 2 of {tmp_path}/in/2.txt\n  record: " in done.stderr
    assert "Traceback" not in done.stderr
