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
    """Sections of the Wikipedia sample, as JSON lines."""
    path = tmp_path_factory.mktemp("documents") / "sections.jsonl"
    sections = islice(strict(open_source(find_sample(), sections=True).read(1)), 300)
    path.write_text("".join(json.dumps(section) + "\n" for _, section in sections))
    return path


@pytest.fixture(scope="module")
def reference(documents: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What their index must be."""
    output = tmp_path_factory.mktemp("reference")
    done = call("run", "driftline.index", "--input", documents, "--output", output, "--reference")
    assert done.returncode == 0, done.stderr
    return lines(output)


@pytest.mark.parametrize(
    ("nodes", "ordering"),
    [
        (2, "speculative"),
        pytest.param(3, "speculative", marks=pytest.mark.soak),
        pytest.param(2, "buffered", marks=pytest.mark.soak),
    ],
)
def test_kill_9_changes_nothing(
    nodes: int, ordering: str, documents: Path, reference: list[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    done = driftline(
        "run", "driftline.index", "--input", documents, "--output", tmp_path / "out",
        "--nodes", str(nodes), "--ordering", ordering, "--window", "1", "--checkpoint-ms", "200",
        "--kill-every", "1", "--json", report,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["kills"] >= 1
    assert lines(tmp_path / "out") == reference


@pytest.mark.parametrize(
    "policy", ["two-phase", pytest.param("strong-productions", marks=pytest.mark.soak)]
)
def test_other_policies_deliver_once_under_kill_9(
    policy: str, documents: Path, reference: list[str], tmp_path: Path
) -> None:
    done = driftline(
        "run", "driftline.index", "--input", documents, "--output", tmp_path / "out",
        "--nodes", "2", "--policy", policy, "--window", "1", "--checkpoint-ms", "100",
        "--kill-every", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    def words(found: list[str]) -> Counter[tuple[str, str, str]]:
        values = [json.loads(line)["value"] for line in found]
        return Counter((v["word"], str(v["document"]), str(v["positions"])) for v in values)

    assert words(lines(tmp_path / "out")) == words(reference)


def test_a_function_that_raises_is_named_with_its_record_and_file(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN_FLOW)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("aa\n")
    (tmp_path / "in" / "2.txt").write_text("cccc\nbbb\n")
    given = "--input", tmp_path / "in", "--output", tmp_path / "out"
    done = call("run", tmp_path / "broken.py", *given)
    assert done.returncode == 1
    for part in ("'divide'", "[3, 0]", "ZeroDivisionError", "bbb", "broken.py:5"):
        assert part in done.stderr
    assert f"It comes from record 2 of {tmp_path}/in/2.txt." in done.stderr
    assert "Traceback" not in done.stderr
