"""`driftline verify` and the start of a run detect changes of delivered outputs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import lmdb
import pytest

import driftline
from driftline.connectors.sinks import JsonLinesConsumer
from driftline.connectors.sinks.lmdb import LmdbConsumer, describe_damage
from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.runtime.claims import claim
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from tests.connectors.sinks.bundles import BARRIER, FLOW, stream
from tests.deploy.local.command import call
from tests.deploy.local.run_copies import RECORDS, RunPlace, end, text


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> RunPlace:
    """Return a run that has completed."""
    root = tmp_path_factory.mktemp("run")
    source = root / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text(i)}) + "\n" for i in range(RECORDS)))
    place = RunPlace(root / "run", "exactly-once", str(source))
    status, log_text = end(place)
    assert status == 0, log_text
    return place


def test_verify_reports_an_intact_run_as_ok(ended: RunPlace, tmp_path: Path) -> None:
    done = call(
        "verify", str(ended.output), "--state", str(ended.state), "--json", str(tmp_path / "v")
    )
    assert (done.returncode, done.stderr) == (0, "")
    *parts, ending = done.stdout.splitlines()
    assert [part.split()[0] for part in parts] == ["ok"] * 5
    assert ending.startswith("complete: the end of the input is reached")
    about = json.loads((tmp_path / "v").read_text())
    assert [report["role"] for report in about["checked"]] == [
        "node-0", "node-1", "used-0", "output-0", "output-1",
    ]  # fmt: skip
    assert about["problems"] == []
    assert (about["run"]["status"], about["run"]["error"]) == ("complete", None)
    alone = call("verify", str(ended.output))
    assert alone.returncode == 0
    assert "no state was checked" in alone.stdout
    assert "how far the run has come is not known" in alone.stdout
    assert call("verify", str(ended.state)).returncode == 0, "without its outputs"
    nothing = call("verify", str(tmp_path))
    assert nothing.returncode == 1
    assert "no outputs and no state" in nothing.stderr


def test_verify_does_not_check_an_active_run(
    ended: RunPlace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("driftline.deploy.runtime.claims.CLAIM_S", 0.1)
    place = ended.copy(tmp_path.name)
    lock = claim(place.state / "master.lock")
    report = tmp_path / "verdict.json"
    report.write_text('{"problems": []}')
    arguments = ["verify", str(place.output), "--state", str(place.state), "--json", str(report)]
    monkeypatch.setattr("sys.argv", ["driftline", *arguments])
    assert driftline._status() == 3
    lock.release()
    captured = capsys.readouterr()
    error = json.loads(report.read_text())["error"]
    assert (captured.out, captured.err.splitlines()[-1]) == ("", error)
    assert "is still active: nothing was checked" in error
    assert "give another" not in error


def test_verify_never_suggests_removing_outputs_without_state(
    ended: RunPlace, tmp_path: Path
) -> None:
    place = ended.copy(tmp_path.name)
    shutil.rmtree(place.output / ".driftline")
    shutil.rmtree(place.state)
    outputs = {file.name: file.read_bytes() for file in place.output.glob("*.jsonl")}
    done = call("verify", str(place.output))
    status, log_text = end(place)
    assert (done.returncode, status) == (1, 1)
    for message in (done.stderr, log_text):
        assert "holds counts-0.jsonl, but " in message
        assert f"restore {place.output / '.driftline'} from a backup" in message
        assert "remove" not in message
    assert "node-0" not in log_text, "reported before nodes start"
    assert {file.name: file.read_bytes() for file in place.output.glob("*.jsonl")} == outputs


def test_verify_of_a_rejected_run_does_not_promise_to_resume(
    ended: RunPlace, tmp_path: Path
) -> None:
    place = ended.copy(tmp_path.name)
    shutil.rmtree(place.state / "node-0")
    report = tmp_path / "verdict.json"
    command = "verify", str(place.output), "--state", str(place.state), "--json", str(report)
    done = call(*command)
    last = done.stdout.splitlines()[-1]
    assert "is computed again" in done.stdout
    assert last.endswith("The command of the run resumes as described above."), last
    file = place.output / "counts-0.jsonl"
    os.truncate(file, 5)
    done = call(*command)
    assert done.returncode == 1
    assert "has 5 bytes" in done.stdout
    assert "not committed" not in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("problems: see above. The run itself: complete: ")
    assert last.endswith("The command of the run is rejected until the problems above are fixed.")
    about = json.loads(report.read_text())["run"]
    assert (about["rejected"], about["snapshot"]) == (True, None)
    status, log_text = end(place)
    assert status == 1, log_text


def test_store_that_cannot_be_opened_is_rejected_with_a_remedy(
    ended: RunPlace, tmp_path: Path
) -> None:
    place = ended.copy(tmp_path.name)
    file = place.state / "node-0" / "data.mdb"
    file.write_bytes(bytes(64) + file.read_bytes()[64:])
    out = f"or remove {place.state / 'node-0'} alone: it is computed again from the input"
    done = call("verify", str(place.output), "--state", str(place.state))
    assert done.returncode == 1
    assert out in done.stdout
    assert done.stdout.endswith(
        "The command of the run is rejected until the problems above are fixed.\n"
    )
    status, log_text = end(place)
    assert status == 1
    assert out in log_text
    shutil.rmtree(place.state / "node-0")
    status, log_text = end(place)
    assert status == 0, log_text


@pytest.mark.parametrize("bundles", [2, 9], ids=["none is delivered", "some are delivered"])
def test_only_delivered_dead_letters_count(tmp_path: Path, bundles: int) -> None:
    consumer = JsonLinesConsumer(tmp_path, BARRIER, FLOW, "me")
    for bundle in stream(bundles):
        consumer.deliver(bundle)
    consumer.close()
    (tmp_path / "dead-letters").mkdir(exist_ok=True)
    with (tmp_path / "dead-letters" / "0.jsonl").open("a") as file:
        file.write("{}\n{}\n")
    (report,) = inspect_directories(tmp_path / "no state", tmp_path)
    assert report.failures == consumer.failures
    assert "and 6 bytes not committed" in report.summary
    assert (consumer.failures > 0) == (bundles == 9)


def test_same_length_change_of_a_line_is_detected(ended: RunPlace, tmp_path: Path) -> None:
    place = ended.copy(tmp_path.name)
    file = place.output / "counts-0.jsonl"
    file.write_text(file.read_text().replace('"count": 7}', '"count": 8}', 1))
    done = call("verify", str(place.output), "--state", str(place.state))
    assert done.returncode == 1
    assert f"{file} differs from the delivered outputs" in done.stdout
    status, log_text = end(place)
    assert status == 1
    assert f"{file} differs from the delivered outputs" in log_text


def test_foreign_or_missing_progress_file_is_detected_without_output_loss(
    ended: RunPlace, tmp_path: Path
) -> None:
    """`verify` and the next run report it, and every line stays unchanged."""
    for swap in (True, False):
        place = ended.copy(f"{tmp_path.name}-{swap}")
        hidden = place.output / ".driftline"
        one, other = hidden / "barrier-0.progress", hidden / "barrier-1.progress"
        data = one.read_bytes()
        one.unlink()
        if swap:
            other.rename(one)
            other.write_bytes(data)
        lines = {file.name: file.read_bytes() for file in place.output.glob("*.jsonl")}
        assert all(lines.values())
        done = call("verify", str(place.output), "--state", str(place.state))
        assert done.returncode == 1
        assert str(one) in done.stdout
        status, log_text = end(place)
        assert status == 1
        assert str(one) in log_text
        assert {file.name: file.read_bytes() for file in place.output.glob("*.jsonl")} == lines


def test_uncommitted_output_is_not_reported_as_damage(ended: RunPlace, tmp_path: Path) -> None:
    place = ended.copy(tmp_path.name)
    with (place.output / "counts-0.jsonl").open("a") as file:
        file.write('{"t": [9999')
    done = call("verify", str(place.output), "--state", str(place.state))
    assert done.returncode == 0
    assert "and 11 bytes not committed, which" in done.stdout


def test_changed_row_is_detected(tmp_path: Path) -> None:
    consumer = LmdbConsumer(tmp_path, BARRIER, FLOW, "me")
    for bundle in stream(12):
        consumer.deliver(bundle)
    consumer.close()
    environment = tmp_path / "barrier-0"
    assert describe_damage(environment) == []
    with lmdb.open(str(environment)) as env, env.begin(write=True) as txn:
        cursor = txn.cursor()
        assert cursor.first()
        txn.put(bytes(cursor.key()), bytes(cursor.value())[:-1] + b"!")
    assert str(environment) in describe_damage(environment)[0]


def test_damaged_lmdb_environment_is_a_permanent_error(tmp_path: Path) -> None:
    consumer = LmdbConsumer(tmp_path, BARRIER, Flow("f"), "me")
    consumer.close()
    (tmp_path / "barrier-0" / "data.mdb").write_bytes(b"no database" * 1000)
    with pytest.raises(StateMismatch, match="is damaged"):
        LmdbConsumer(tmp_path, BARRIER, Flow("f"), "me")
