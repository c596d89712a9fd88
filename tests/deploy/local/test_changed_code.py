"""A flow is edited between two starts of its run: real processes, real kill -9."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.deploy.local.edited import RECORDS, Edited
from tests.deploy.local.run_copies import LIMIT_S, kill, wait_until


@pytest.mark.parametrize(
    "checkpoint_ms",
    [60, pytest.param(3_600_000, marks=pytest.mark.soak)],
    ids=["snapshots", "no snapshot"],
)
def test_changed_code_is_refused_by_name_or_accepted_and_survives_kills(
    tmp_path: Path, checkpoint_ms: int
) -> None:
    run = Edited(tmp_path, checkpoint_ms=checkpoint_ms)
    run.interrupt("old", 300)
    run.edit("newer")
    status, said = run.end()
    assert status == 1
    assert "the code of operator 'count' has changed" in said
    assert "--fresh" in said
    assert "--accept-changed-code" in said
    assert "Traceback" not in said
    run.interrupt("newer", 100, "--accept-changed-code")
    run.interrupt("newer", 200)  # accepted before
    run.edit("newest")
    run.interrupt("newest", 20, "--accept-changed-code")
    status, said = run.end()
    assert status == 0, said
    run.check()
    assert 290 < run.versions().count("old") < RECORDS  # a line may not have been committed
    assert run.versions().count("newer") > 190
    assert run.versions().count("newest") > 10


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["two-phase", "strong-productions"])
def test_the_other_policies_neither_lose_nor_repeat_with_new_code(
    tmp_path: Path, policy: str
) -> None:
    run = Edited(tmp_path, policy)
    run.interrupt("old", 200)
    run.edit("newer")
    status, said = run.end()
    assert (status, "the code of operator 'count' has changed" in said) == (1, True)
    run.interrupt("newer", 50, "--accept-changed-code")
    status, said = run.end()
    assert status == 0, said
    run.check(policy)
    assert {*run.versions()} == {"old", "newer"}


def test_run_reports_first_record_processed_by_new_code(tmp_path: Path) -> None:
    run = Edited(tmp_path, checkpoint_ms=3_600_000)
    run.interrupt("old", 300)
    run.edit("newer")
    status, said = run.end("--accept-changed-code")
    assert status == 0, said
    assert "new code of operator 'count': it applies from record 1 on" in said
    assert re.search("The new code processes record 1 to record [0-9]+ again", said)
    assert "The old code delivered their outputs, which stay as they are" in said
    run.edit("newest")
    status, said = run.end("--accept-changed-code")
    assert status == 0, said
    assert f"new code of operator 'count': it applies from record {RECORDS + 1} on" in said
    assert "The new code processes" not in said  # the run before came to its end
    run.check()


def test_changed_flow_or_options_are_rejected_with_the_differences(tmp_path: Path) -> None:
    run = Edited(tmp_path)
    run.interrupt("old", 50)
    run.edit("old", ', fields=("version", "key", "n")')
    status, said = run.end()
    assert (status, "the code of operators 'count', 'out' has changed" in said) == (1, True)
    run.edit("old")
    (tmp_path / "in.jsonl").rename(tmp_path / "moved.jsonl")
    (tmp_path / "in.jsonl").write_text('{"key": 1}\n')
    text = (tmp_path / "flow.py").read_text().replace('ValueState("n")', 'ValueState("m")')
    (tmp_path / "flow.py").write_text(text)
    status, said = run.end("--nodes", "3", "--policy", "two-phase")
    assert status == 1
    for part in (
        "operator 'count' lacks its state 'n' (ValueState)",
        "operator 'count' has a new state 'm' (ValueState)",
        "the policy is two-phase instead of exactly-once",
        "the number of nodes is 3 instead of 2",
        "--fresh",
        "give another --output",
    ):
        assert part in said


def test_code_change_during_a_run_fails_it(tmp_path: Path) -> None:
    run = Edited(tmp_path)
    process = run.start("--window", "1", "--spares", "0")  # one has the old code
    try:
        wait_until(lambda: len(run.values()) > 20, "outputs")
        run.edit("newer")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 1
    assert "has the file changed meanwhile" in said
    run.edit("old")
    status, said = run.end()
    assert status == 0, said
    assert {*run.versions()} == {"old"}
    run.check()
