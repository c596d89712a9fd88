"""Long runs of real processes that are killed all the time; about ten minutes in all.

pytest -m soak
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from driftline.connectors.files import find_sample, open_source
from driftline.engine.sources import strict
from tests.deploy.local.command import ROOT, driftline, lines

pytestmark = pytest.mark.soak

SECTIONS = 3000
TIMEOUT_S = 900
KILLS_MAX = 12


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sections of the Wikipedia sample, again and again until there are enough."""
    path = tmp_path_factory.mktemp("documents") / "sections.jsonl"
    sections = [
        record
        for _, record in islice(strict(open_source(find_sample(), sections=True).read(1)), SECTIONS)
    ]
    with path.open("w") as file:
        for i in range(SECTIONS):
            record = sections[i % len(sections)]
            assert isinstance(record, dict)
            file.write(json.dumps({**record, "id": i}) + "\n")
    return path


@pytest.fixture(scope="module")
def reference(documents: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What their index must be."""
    output = tmp_path_factory.mktemp("reference")
    done = driftline(
        "run",
        "driftline.index",
        "--input",
        documents,
        "--output",
        output,
        "--reference",
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return lines(output)


def _arguments(documents: Path, output: Path, *more: str) -> list[str | Path]:
    return [
        "run",
        "driftline.index",
        "--input",
        documents,
        "--output",
        output,
        "--checkpoint-ms",
        "300",
        *more,
    ]


@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize(
    ("nodes", "ordering"), [("1", "speculative"), ("3", "speculative"), ("2", "buffered")]
)
def test_nodes_and_master_are_killed(
    nodes: str, ordering: str, attempt: int, documents: Path, reference: list[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    more = ("--nodes", nodes, "--ordering", ordering, "--window", "4", "--kill-every", "2")
    done = driftline(
        *_arguments(documents, tmp_path / "out", *more),
        "--json", report, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["kills"] >= 3
    assert lines(tmp_path / "out") == reference


@pytest.mark.parametrize("policy", ["two-phase", "strong-productions"])
def test_other_policies_lose_and_repeat_nothing_under_kills(
    policy: str, documents: Path, reference: list[str], tmp_path: Path
) -> None:
    done = driftline(
        *_arguments(documents, tmp_path / "out", "--nodes", "2", "--policy", policy),
        "--window", "4", "--kill-every", "3", timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    def labels(found: list[str]) -> Counter[str]:
        return Counter(str(json.loads(line)["t"]) for line in found)

    assert labels(lines(tmp_path / "out")) == labels(reference)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_whole_run_is_killed_and_started_again(
    seed: int, documents: Path, reference: list[str], tmp_path: Path
) -> None:
    chance = random.Random(seed)
    arguments = _arguments(documents, tmp_path / "out", "--nodes", "2", "--window", "2")
    command = [sys.executable, "-m", "driftline", *map(str, arguments)]
    kills = 0
    while True:
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            patience_s = chance.uniform(2.0, 6.0) if kills < KILLS_MAX else TIMEOUT_S
            _, said = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, said
        break
    assert kills >= 2
    assert lines(tmp_path / "out") == reference
