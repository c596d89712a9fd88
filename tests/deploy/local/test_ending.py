"""`driftline verify` reports how a run ended: complete, by a signal, by an error, or by a kill."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from driftline.coordinator.draining import ENDED_ON_REQUEST
from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import (
    ClusterState,
    FileRegistry,
    RunOutcome,
    SnapshotRecord,
)
from driftline.deploy.local.directories.survey import DirectoryReport
from driftline.deploy.local.report import EndStatus, ending_of, record_error
from driftline.engine.errors import Unavailable
from driftline.engine.flow.outline import Outline
from driftline.engine.storage.ownership import DirectoryOwner
from tests.deploy.local.command import call

BY_TIME = [SnapshotRecord(7, 500, (500,))]


def state(
    policy: str = "exactly-once",
    outcome: RunOutcome | None = None,
    snapshots: int = 1,
) -> ClusterState:
    about = Identity(Outline("f", 128, ()), "digest", policy, 1, ("in",))
    return ClusterState(
        about.text,
        version=3,
        incarnation=2,
        snapshots=tuple(BY_TIME[:snapshots]),
        outcome=outcome,
        identity_details=about,
    )


def outputs(*times: int) -> list[DirectoryReport]:
    return [DirectoryReport(f"output-{i}", "out", t_last=time) for i, time in enumerate(times)]


@pytest.mark.parametrize(
    ("outcome", "how"),
    [
        (RunOutcome("r", "", ""), EndStatus.COMPLETE),
        (RunOutcome("r", "", ENDED_ON_REQUEST), EndStatus.DRAINED),
        (RunOutcome("r", "InputError", "line 3"), EndStatus.FAILED),
        (None, EndStatus.INTERRUPTED),
    ],
)
def test_ending_reports_outcome_and_resume_point(
    outcome: RunOutcome | None, how: EndStatus
) -> None:
    ending = ending_of(state(outcome=outcome), outputs(-1, 499, 480))
    assert ending.status is how
    resumes = "resumes from snapshot 7 (the state before record 500)"
    assert (resumes in ending.text) == (how is not EndStatus.COMPLETE)
    about = ending.as_json()
    assert (about["status"], about["snapshot"]) == (how.value, {"number": 7, "time": 500})
    assert about["error"] == ("InputError: line 3" if how is EndStatus.FAILED else None)
    empty = ending_of(state("none", outcome, snapshots=0), [])
    assert ("begins with an empty state" in empty.text) == (how is not EndStatus.COMPLETE)


def test_run_without_registry_or_records_is_not_complete() -> None:
    assert ending_of(None, outputs(499)).status is EndStatus.UNKNOWN
    begun = replace(state(snapshots=0), incarnation=0)
    assert ending_of(begun, []).status is EndStatus.NOT_BEGUN


def test_call_killed_before_its_first_decision_keeps_earlier_outcome() -> None:
    """Records may be in the input log already, but the outcome is that of the earlier call."""
    run = replace(state(outcome=RunOutcome("r", "", ENDED_ON_REQUEST)), last_session=2)
    for session, how in ((2, EndStatus.DRAINED), (3, EndStatus.INTERRUPTED)):
        log = DirectoryReport("input-0", "log", owner=DirectoryOwner("me", "input-0", session))
        assert ending_of(run, [log]).status is how


def test_error_is_recorded_only_for_a_call_without_an_outcome(tmp_path: Path) -> None:
    registry = FileRegistry(tmp_path / "registry")
    cases = [("other", "before", False), ("mine", "before", True), ("mine", "now", False)]
    for lineage, run_id, noted in cases:
        outcome = RunOutcome(run_id, "", "")
        (tmp_path / "registry").unlink(missing_ok=True)
        registry.write(replace(state(outcome=outcome), version=1, lineage=lineage))
        with pytest.raises(Unavailable), record_error(tmp_path, "mine", "now"):
            raise Unavailable("no way")
        found = registry.read()
        assert found is not None
        assert found.outcome == (RunOutcome("now", "Unavailable", "no way") if noted else outcome)


def test_verify_reports_the_error_that_ended_a_run(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "from driftline import Flow\n"
        "flow = Flow('failing')\n"
        "flow.source('lines').map(lambda r: 1 // (r['n'] - 3), name='divide').sink()\n"
    )
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(9)))
    report = tmp_path / "report.json"
    report.write_text('{"records": 9}')
    options = "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out", "--max-crashes", "1"
    done = call("run", tmp_path / "failing.py", *options, "--json", report)
    assert done.returncode == 1
    error_report = json.loads(report.read_text())
    assert error_report.keys() == {"error", "ended_by"}
    done = call("verify", tmp_path / "out", "--json", report)
    assert done.returncode == 0, done.stdout + done.stderr
    about = json.loads(report.read_text())["run"]
    assert about["status"] == "failed"
    first_line, _, rest = str(about["error"]).partition(": ")[2].partition("\n")
    assert error_report["error"].startswith(first_line)
    assert rest in error_report["error"]
    assert re.match(r"FunctionFailed: .*divide.*ZeroDivisionError", str(about["error"]), re.DOTALL)
    assert str(about["error"]) in done.stdout
    assert "The command of the run resumes" in done.stdout
    assert "once the cause is fixed; after a change to the code of an operator, add --acc" in (
        done.stdout
    )
