"""`driftline savepoint` of a stopped run: it contains all results, and the run does not change."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from driftline.coordinator.registry import ClusterState, FileRegistry
from driftline.deploy.producer import Producer
from tests.deploy.local.command import call, count_lines
from tests.deploy.local.run_copies import (
    FLOW,
    LIMIT_S,
    RunPlace,
    end,
    free_port,
    kill,
    text,
    wait_until,
)

RECORDS = 30
"""Few, so that the run completes before its first snapshot is due."""

NEVER = ("--snapshot-interval-ms", "600000")


def make_run(root: Path, records: range) -> RunPlace:
    file = root / "in.jsonl"
    root.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps({"text": text(n)}) + "\n" for n in records))
    return RunPlace(root, "exactly-once", str(file))


def verified(place: RunPlace) -> tuple[str, dict[str, object]]:
    report = place.root / "verdict.json"
    done = call("verify", str(place.output), "--state", str(place.state), "--json", str(report))
    return done.stdout, json.loads(report.read_text())["run"]


def save(place: RunPlace, to: Path) -> str:
    done = call("savepoint", str(FLOW), "--state", str(place.state), "--output", str(to))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGTERM, "drained"), (signal.SIGKILL, "interrupted")]
)
def test_savepoint_does_not_change_the_verdict_on_a_stopped_live_run(
    tmp_path: Path, number: signal.Signals, how: str
) -> None:
    place = RunPlace(tmp_path / "run", "exactly-once", f"tcp://127.0.0.1:{free_port()}")
    process = place.start()
    try:
        with Producer(place.source, "p", timeout_s=LIMIT_S) as producer:
            for n in range(20):
                producer.send({"text": text(n)})
        wait_until(lambda: count_lines(place.output) >= 80, "their outputs")
        wait_until(lambda: has_snapshot(place.registry()), "a snapshot")
        process.send_signal(number)
        process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            kill(process)
    before = verified(place)
    assert before[1]["status"] == how
    words = save(place, tmp_path / "saved")
    assert "the state before 20" in words, "a live run has the date of its last label"
    assert ("not in the savepoint" in words) == (how == "interrupted")
    assert verified(place) == before


def has_snapshot(state: ClusterState | None) -> bool:
    return state is not None and bool(state.snapshots)


def test_savepoint_without_a_snapshot_names_the_remedy(tmp_path: Path) -> None:
    place = make_run(tmp_path / "empty", range(0))
    assert end(place, *NEVER)[0] == 0
    done = call(
        "savepoint", str(FLOW), "--state", str(place.state), "--output", str(tmp_path / "s")
    )
    assert done.returncode == 1
    assert "its run has processed no record" in done.stderr
    assert not (tmp_path / "s").exists()
    (place.state / "registry").unlink()
    done = call(
        "savepoint", str(FLOW), "--state", str(place.state), "--output", str(tmp_path / "s")
    )
    assert "it has no registry" in done.stderr
    assert FileRegistry(place.state / "registry").read() is None
