"""`--fresh` removes state and outputs of the earlier run and nothing else, or removes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from driftline import Flow, FlowError, run
from driftline.connectors.logs.inputlog import InputLog, LoggedRecord, WriteGroup
from driftline.coordinator.registry import FileRegistry
from driftline.deploy.local.config import RunConfig
from driftline.deploy.local.directories.fresh import remove_run
from driftline.deploy.local.directories.leftovers import clear_drafts
from driftline.deploy.local.inputs.fronts import PIPED, RECEIVED
from driftline.deploy.local.report import RunReport
from driftline.engine.durable import Lock
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.loading import load_flow
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.pipeline.outputs import write_commit_record
from tests.deploy.local.edited import EditedRun


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a killed run, with its flow and input."""
    folder = tmp_path_factory.mktemp("killed")
    EditedRun(folder).interrupt("old", 100)
    (folder / "out" / "dead-letters").mkdir()
    (folder / "out" / "dead-letters" / "input-0.jsonl").write_text('{"record": 7}\n')
    return folder


class KilledRunCopy:
    """Copy of the killed run's folder."""

    def __init__(self, of: Path, to: Path) -> None:
        shutil.copytree(of, to, dirs_exist_ok=True)
        self.folder = to
        self.output = to / "out"
        self.state = self.output / ".driftline" / "state"
        clear_drafts(self.output, self.state, self.state.parent)  # as a run does first

    def remove_old_run(self, identity: str = "") -> None:
        remove_run(self.flow(), self.state, self.output, identity)

    def flow(self) -> Flow:
        return load_flow(str(self.folder / "flow.py"))

    def files(self) -> set[str]:
        """Return the names of all files except locks and sockets."""
        paths = (path for path in self.output.rglob("[!.]*") if path.is_file())
        names = {str(path.relative_to(self.output)) for path in paths}
        return {name for name in names if not name.endswith((".lock", "sockets"))}


@pytest.fixture
def copy(killed: Path, tmp_path: Path) -> KilledRunCopy:
    return KilledRunCopy(killed, tmp_path)


def test_fresh_run_starts_over_with_current_code(killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    again = EditedRun(tmp_path)
    again.edit("newest")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    status, log_text = again.end("--fresh", "--nodes", "3")
    assert status == 0, log_text
    assert {*again.versions()} == {"newest"}
    again.check()
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "out" / "dead-letters").exists() or not list(
        (tmp_path / "out" / "dead-letters").iterdir()
    )


def test_fresh_removes_files_of_the_run_and_keeps_others(copy: KilledRunCopy) -> None:
    (copy.output / "notes.txt").write_text("mine")
    copy.remove_old_run()
    assert copy.files() == {"notes.txt"}


def test_fresh_keeps_spark_outputs_and_rejects_another_run(copy: KilledRunCopy) -> None:
    (copy.output / "out-spark-00001.jsonl").write_text("of Spark\n")
    write_commit_record(copy.output, end=3, outputs=1, failures=0, savepoint=Path("sv"))
    before = copy.files()
    with pytest.raises(StateMismatch, match=r"before record 3.*--from-savepoint .*sv"):
        copy.remove_old_run("digest|exactly-once|1|in.jsonl")
    assert copy.files() == before
    for _ in range(2):
        copy.remove_old_run("digest|exactly-once|1|in.jsonl|from sv at 3")
        assert copy.files() == {"out-spark-00001.jsonl", ".driftline/spark.progress"}


FOREIGN = [
    "mine.jsonl",
    "other-0.jsonl",
    "dead-letters/mine.txt",
    ".driftline/mine",
    ".driftline/state/mine",
    ".driftline/state/node-0/mine",
    ".driftline/state/node-x/data.mdb",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_fresh_removes_nothing_if_a_foreign_file_exists(copy: KilledRunCopy, name: str) -> None:
    path = copy.output / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = copy.files()
    with pytest.raises(StateMismatch, match="--fresh removes nothing") as error:
        copy.remove_old_run()
    assert str(path if path.parent.name != "node-x" else path.parent) in str(error.value)
    assert copy.files() == before


class PowerFailure(BaseException):
    """Power failure at this step."""


def crash_at_call(call: Callable[..., None], calls: list[object], at: int) -> Callable[..., None]:
    def crash(*arguments: object, **options: object) -> None:
        calls.append(arguments)
        if len(calls) == at:
            raise PowerFailure
        call(*arguments, **options)

    return crash


def test_fresh_finishes_after_a_crash_at_any_step(killed: Path, tmp_path: Path) -> None:
    for crash_at in range(1, 100):
        copy = KilledRunCopy(killed, tmp_path / str(crash_at))
        calls: list[object] = []
        with (
            patch.object(Path, "unlink", crash_at_call(Path.unlink, calls, crash_at)),
            patch.object(shutil, "rmtree", crash_at_call(shutil.rmtree, calls, crash_at)),
        ):
            try:
                copy.remove_old_run()
            except PowerFailure:
                pass
            else:
                break
        if len(calls) > 1 and (copy.state / "registry").exists():
            assert not (copy.output / ".driftline/barrier-0.owner").exists()  # so a run is rejected
        copy.remove_old_run()
        assert copy.files() == set()
    assert crash_at > 8


@pytest.mark.parametrize("lock", ["barrier-1.lock", "state/node-0.lock", "state/master.lock"])
def test_fresh_is_rejected_while_a_process_holds_a_lock(copy: KilledRunCopy, lock: str) -> None:
    before = copy.files()
    with patch("driftline.deploy.runtime.claims.CLAIM_S", 0.05):
        held = Lock(copy.output / ".driftline" / lock, "taken")
        with pytest.raises(Unavailable):
            copy.remove_old_run()
        held.release()
        assert copy.files() == before
        copy.remove_old_run()


def add_input_log(copy: KilledRunCopy, entries: int, input_kind: str) -> Path:
    """Give the run a log of received input."""
    registry = FileRegistry(copy.state / "registry")
    run = registry.read()
    assert run is not None
    assert run.identity_details is not None
    about = type(run.identity_details)(
        run.identity_details.flow, run.identity_details.digest, "exactly-once", 2, (input_kind,)
    )
    registry.write(run.next(identity_details=about))
    log = InputLog(copy.state / "input-0", "in", DirectoryOwner(run.lineage, "input-0", 1))
    records = tuple(LoggedRecord(time, "p", time, b"\xa1x") for time in range(1, entries + 1))
    log.write(WriteGroup(records, 100, 0))
    log.close()
    return copy.state / "input-0"


def test_fresh_keeps_input_log_of_records_that_cannot_be_resent(copy: KilledRunCopy) -> None:
    log = add_input_log(copy, 3, RECEIVED)
    before = copy.files()
    with pytest.raises(StateMismatch, match="their producers cannot resend") as error:
        copy.remove_old_run()
    assert f"Remove {log} by hand" in str(error.value)
    assert copy.files() == before
    (log / "segment-00000000").write_bytes(b"damaged")
    with pytest.raises(StateMismatch, match="cannot be read"):
        copy.remove_old_run()
    shutil.rmtree(log)
    copy.remove_old_run()
    assert copy.files() == set()


@pytest.mark.parametrize(("entries", "input_kind"), [(0, RECEIVED), (3, PIPED)])
def test_fresh_removes_empty_log_and_log_of_standard_input(
    copy: KilledRunCopy, entries: int, input_kind: str
) -> None:
    add_input_log(copy, entries, input_kind)
    copy.remove_old_run()
    assert copy.files() == set()


def test_fresh_keeps_outputs_that_do_not_belong_to_the_state(
    copy: KilledRunCopy, tmp_path: Path
) -> None:
    before = copy.files()
    with pytest.raises(StateMismatch, match="outputs of another run"):
        remove_run(copy.flow(), tmp_path / "elsewhere", copy.output)
    copy.state.rename(tmp_path / "state")  # as if the run had been started with --state
    with pytest.raises(StateMismatch, match="give the --state of these outputs"):
        copy.remove_old_run()
    (tmp_path / "state").rename(copy.state)
    registry = FileRegistry(copy.state / "registry")
    state = registry.read()
    assert state is not None
    registry.write(state.next(lineage="another"))
    with pytest.raises(StateMismatch, match="outputs of another run"):
        copy.remove_old_run()
    assert copy.files() == before


@pytest.mark.parametrize("damaged", ["registry", "../barrier-0.progress", "../barrier-0.owner"])
def test_fresh_removes_damaged_files(copy: KilledRunCopy, damaged: str) -> None:
    (copy.state / damaged).write_bytes(b"damaged")
    copy.remove_old_run()
    assert copy.files() == set()


def test_fresh_in_python_requires_node_processes(
    copy: KilledRunCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = str(copy.folder / "flow.py")
    records = [{"key": "a"}, {"key": "b"}]
    with pytest.raises(StateMismatch, match="the input of source 'records' is"):
        run(spec, [records], copy.output, nodes=2)
    configs: list[RunConfig] = []

    def noted(flow: Flow, config: RunConfig, console: object) -> RunReport:
        configs.append(config)
        return RunReport(2, 2, 0.1, 0, 0)

    monkeypatch.setattr("driftline.api.run.run_flow", noted)
    run(spec, [records], copy.output, fresh=True)
    run(spec, [records], copy.output, accept_changed_code=True)
    assert [(config.fresh, config.accept_changed_code) for config in configs] == [
        (True, False), (False, True),
    ]  # fmt: skip
    for options in ({"fresh": True}, {"accept_changed_code": True}):
        with pytest.raises(FlowError, match="for nodes that are processes"):
            run(copy.flow(), [records], **options)  # type: ignore[call-overload]
