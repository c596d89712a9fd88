"""`driftline verify` says how far a run has come: to its end, to a signal, an error, a kill."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from driftline.coordinator.draining import ENDED_ON_REQUEST
from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import (
    ClusterState,
    FileRegistry,
    RunOutcome,
    SnapshotRecord,
)
from driftline.deploy.local.directories.survey import DirectoryReport, Problem
from driftline.deploy.local.report import ExitStatus, ending_of, error_noted
from driftline.deploy.producer import Producer
from driftline.engine.errors import Unavailable
from driftline.engine.flow.outline import Outline
from driftline.engine.storage.manifest import Mark
from tests.deploy.local.run_copies import LIMIT_S, Place, end, free_port, kill, run, wait_until

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
        (RunOutcome("r", "", ""), ExitStatus.COMPLETE),
        (RunOutcome("r", "", ENDED_ON_REQUEST), ExitStatus.ASKED),
        (RunOutcome("r", "InputError", "line 3"), ExitStatus.FAILED),
        (None, ExitStatus.INTERRUPTED),
    ],
)
def test_ending_reports_outcome_and_resume_point(
    outcome: RunOutcome | None, how: ExitStatus
) -> None:
    ending = ending_of(state(outcome=outcome), outputs(-1, 499, 480))
    assert ending.how is how
    resumes = "resumes from snapshot 7 (the state before record 500)"
    assert (resumes in ending.text) == (how is not ExitStatus.COMPLETE)
    about = ending.as_json()
    assert (about["how"], about["snapshot"]) == (how.value, {"number": 7, "time": 500})
    assert about["error"] == ("InputError: line 3" if how is ExitStatus.FAILED else None)
    empty = ending_of(state("none", outcome, snapshots=0), [])
    assert ("begins with an empty state" in empty.text) == (how is not ExitStatus.COMPLETE)


def test_a_run_without_registry_or_record_is_not_called_complete() -> None:
    assert ending_of(None, outputs(499)).how is ExitStatus.UNKNOWN
    begun = replace(state(snapshots=0), incarnation=0)
    assert ending_of(begun, []).how is ExitStatus.NOT_BEGUN


def test_call_killed_before_its_first_decision_keeps_earlier_outcome() -> None:
    """Its records may be in the input log already: the outcome is that of the call before."""
    run = replace(state(outcome=RunOutcome("r", "", ENDED_ON_REQUEST)), last_session=2)
    for session, how in ((2, ExitStatus.ASKED), (3, ExitStatus.INTERRUPTED)):
        log = DirectoryReport("input-0", "log", mark=Mark("me", "input-0", session))
        assert ending_of(run, [log]).how is how


REFUSED = "The same command is refused until the problems above are fixed."


@pytest.mark.parametrize(
    "outcome",
    [
        RunOutcome("r", "", ""),
        RunOutcome("r", "", ENDED_ON_REQUEST),
        RunOutcome("r", "InputError", "line 3"),
        None,
    ],
)
@pytest.mark.parametrize("policy", ["exactly-once", "at-least-once", "none"])
def test_ending_of_a_rejected_run_does_not_promise_to_resume(
    outcome: RunOutcome | None, policy: str
) -> None:
    found = [Problem("input-0 is an old copy"), Problem("node-0 is gone", fatal=False)]
    ending = ending_of(state(policy, outcome), outputs(499), found)
    assert "resumes" not in ending.text
    assert "begins with" not in ending.text
    assert ending.text.endswith(REFUSED)
    about = ending.as_json()
    assert (about["refused"], about["snapshot"]) == (True, None)


@pytest.mark.parametrize("outcome", [RunOutcome("r", "", ""), None])
def test_ending_of_a_recomputing_run_names_no_snapshot(
    outcome: RunOutcome | None,
) -> None:
    found = [Problem("node-0 is gone; its state is computed again", fatal=False)]
    ending = ending_of(state(outcome=outcome), outputs(499), found)
    assert ending.text.endswith("The same command resumes as described above.")
    about = ending.as_json()
    assert (about["refused"], about["snapshot"]) == (False, None)


def test_an_error_is_noted_only_for_a_call_without_an_outcome(tmp_path: Path) -> None:
    registry = FileRegistry(tmp_path / "registry")
    cases = [("other", "before", False), ("mine", "before", True), ("mine", "now", False)]
    for lineage, run_id, noted in cases:
        outcome = RunOutcome(run_id, "", "")
        (tmp_path / "registry").unlink(missing_ok=True)
        registry.write(replace(state(outcome=outcome), version=1, lineage=lineage))
        with pytest.raises(Unavailable), error_noted(tmp_path, "mine", "now"):
            raise Unavailable("no way")
        found = registry.read()
        assert found is not None
        assert found.outcome == (RunOutcome("now", "Unavailable", "no way") if noted else outcome)


# Real runs.


def verified(place: Place, tmp_path: Path) -> tuple[str, dict[str, object]]:
    """The last line of `verify`, and what its JSON says of the run."""
    report = tmp_path / "verdict.json"
    done = run("verify", str(place.output), "--state", str(place.state), "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(report.read_text())["run"]


def has_lines(place: Place, count: int) -> bool:
    return len(place.lines()) >= count


def test_verify_distinguishes_killed_signalled_and_completed_runs(tmp_path: Path) -> None:
    place = Place(tmp_path / "run", "exactly-once", f"tcp://127.0.0.1:{free_port()}")
    for number, how in ((signal.SIGKILL, "interrupted"), (signal.SIGTERM, "drained")):
        before = len(place.lines())
        process = place.start()
        try:
            with Producer(place.source, "p", timeout_s=LIMIT_S) as producer:
                for _ in range(20):
                    producer.send({"text": "a b"})
            wait_until(partial(has_lines, place, before + 40), "their outputs")
            process.send_signal(number)
            process.communicate(timeout=LIMIT_S)
        finally:
            if process.poll() is None:
                kill(process)
        said, about = verified(place, tmp_path)
        assert about["how"] == how, said
    status, said = end(place)
    assert status == 0, said
    assert verified(place, tmp_path)[1]["how"] == "complete"


def test_the_error_that_ended_a_run_is_told(tmp_path: Path) -> None:
    does, error = "1 // (r['n'] - 3)", r"FunctionFailed: .*divide.*ZeroDivisionError"
    (tmp_path / "failing.py").write_text(
        "from driftline import Flow\n"
        "flow = Flow('failing')\n"
        f"flow.source('lines').map(lambda r: {does}, name='divide').sink()\n"
    )
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(9)))
    place = Place(tmp_path, "exactly-once", "in.jsonl")
    command = ["run", "failing.py", "--input", "in.jsonl", "--output", "out", "--state", "state"]
    command += ["--deaths", "1", "--json", "report.json"]
    report = tmp_path / "report.json"
    report.write_text('{"records": 9}')
    done = subprocess.run([sys.executable, "-m", "driftline", *command], cwd=tmp_path, check=False)
    assert done.returncode == 1
    told = json.loads(report.read_text())
    assert told.keys() == {"error", "ended_by"}
    said, about = verified(place, tmp_path)
    assert about["how"] == "failed"
    assert str(about["error"]).partition(": ")[2] in told["error"]
    assert re.match(error, str(about["error"]), re.DOTALL)
    assert str(about["error"]) in said
    assert "The same command resumes" in said
    assert "once the cause is fixed; after a change to the code of an operator, add --acc" in said
    flow = (tmp_path / "failing.py").read_text()
    (tmp_path / "failing.py").write_text(flow.replace(does, "r['n']"))
    mended = [*command, "--accept-changed-code"]
    done = subprocess.run([sys.executable, "-m", "driftline", *mended], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert len(place.lines()) == 9
    told = json.loads(report.read_text())
    assert (told["error"], told["outputs"]) == (None, 9)
