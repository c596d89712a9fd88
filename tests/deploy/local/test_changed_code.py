"""A flow is edited between two starts of its run: real processes, real kill -9."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import ClusterState, FileRegistry, SnapshotRecord
from driftline.deploy.local.directories.opening import open_run
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.code import code_of
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.outline import make_outline
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from tests.deploy.local.edited import FLOW, RECORDS, EditedRun
from tests.deploy.local.run_copies import LIMIT_S, kill, wait_until


def test_changed_code_is_rejected_by_name_or_accepted_and_survives_kills(tmp_path: Path) -> None:
    run = EditedRun(tmp_path)
    run.interrupt("old", 150)
    run.edit("newer")
    status, log_text = run.end()
    assert status == 1
    assert "the code of operator 'count' has changed" in log_text
    assert "--fresh" in log_text
    assert "--accept-changed-code" in log_text
    assert "Traceback" not in log_text
    run.interrupt("newer", 50, "--accept-changed-code")
    status, log_text = run.end()  # an earlier start accepted the change
    assert status == 0, log_text
    run.check()
    assert 140 < run.versions().count("old") < RECORDS  # the last line may not be committed
    assert {*run.versions()} == {"old", "newer"}


def test_code_change_during_a_run_fails_it(tmp_path: Path) -> None:
    run = EditedRun(tmp_path)
    process = run.start("--max-in-flight", "1")
    try:
        wait_until(lambda: run.count("old") > 20, "outputs")
        run.edit("newer")
        [fork_server] = psutil.Process(process.pid).children()
        fork_server.children()[0].kill()
        _, log_text = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 1
    assert "has the file changed meanwhile" in log_text
    assert {*run.versions()} == {"old"}


# The rules at a start, without processes.


class ReopenedState:
    """State directory of a run that has processed records; tests open it repeatedly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = FileRegistry(folder / "state" / "registry")
        (folder / "state").mkdir()

    def open(
        self, text: str, policy: str = "exactly-once", nodes: int = 2, *, accept: bool = False
    ) -> ClusterState:
        (self.folder / "flow.py").write_text(text)
        flow = load_flow(str(self.folder / "flow.py"))
        identity = Identity(make_outline(flow), make_plan(flow).identity(), policy, nodes, ("in",))
        return open_run(
            *(self.folder / "state", self.folder / "out", identity, code_of(flow)),
            *(get_policy(policy), ()),
            accept_changed_code=accept,
        )


@pytest.fixture
def opened(tmp_path: Path) -> ReopenedState:
    return ReopenedState(tmp_path)


OLD, NEWER = (FLOW.format(version=version, more="") for version in ("old", "newer"))


def test_start_reports_first_record_processed_by_new_code(
    opened: ReopenedState, caplog: pytest.LogCaptureFixture
) -> None:
    opened.open(OLD)
    opened.open(NEWER)  # the run has processed no record
    state = opened.registry.read()
    assert state is not None
    snapshot = SnapshotRecord(7, 40, (40,))
    opened.registry.write(state.next(incarnation=3, snapshots=(snapshot,)))
    with pytest.raises(StateMismatch, match="the code of operator 'count' has changed"):
        opened.open(OLD)
    assert opened.open(OLD, accept=True).code_from == 4
    assert "new code of operator 'count': it applies from record 40 on" in caplog.text
    opened.open(OLD)
    fields = OLD.replace('name="count"', 'name="count", fields=("version", "key", "n")')
    with pytest.raises(StateMismatch, match="the code of operators 'count', 'out' has changed"):
        opened.open(fields)


def test_changed_flow_or_options_are_rejected_with_the_differences(opened: ReopenedState) -> None:
    opened.open(OLD)
    with pytest.raises(StateMismatch) as refused:
        opened.open(OLD.replace('ValueState("n")', 'ValueState("m")'), "two-phase", 3)
    for part in (
        "operator 'count' lacks its state 'n' (ValueState)",
        "operator 'count' has a new state 'm' (ValueState)",
        "the policy is two-phase instead of exactly-once",
        "the number of nodes is 3 instead of 2",
        "--fresh",
        "give another --output",
    ):
        assert part in str(refused.value)
