"""Messages of cluster commands after typing errors, or before agents or flows exist."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import driftline
from driftline import Flow
from driftline.coordinator.registry import SnapshotRecord
from driftline.deploy.cluster.records import AgentRecord, AgentRole
from driftline.deploy.cluster.submissions import CANCELLED, fail, submission_of
from driftline.deploy.cluster.submitting import SubmitRequest, submit
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.runtime.config import Reading
from driftline.deploy.runtime.sockets.keys import add_keys, read_key
from driftline.engine.policy import get_policy
from tests.zookeepers import show

FLOW = """
from driftline import Flow
from driftline.coordinator.registry import SnapshotRecord
flow = Flow("counts")
flow.source("lines").sink("out")
"""


@pytest.fixture
def tree(
    empty_tree: ZooKeeperTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ZooKeeperTree:
    """Provide a cluster with one flow and idle agents; the agent of its node is not running."""
    (tmp_path / "flow.py").write_text(FLOW)
    tree = empty_tree
    monkeypatch.setenv("DRIFTLINE_ZOOKEEPER", tree.zookeeper)
    for name, role in (
        ("m", AgentRole.MASTER),
        ("a-node", AgentRole.NODE),
        ("a-front", AgentRole.FRONT),
    ):
        show(tree, name, role, slots=2)
    flow = Flow("counts")
    flow.source("lines").sink("out")
    reading = Reading((str(tmp_path / "in.jsonl"),))
    order = SubmitRequest("counts", str(tmp_path / "flow.py"), reading, str(tmp_path / "out"), 1,
                  get_policy("exactly-once"), 1.0, dead_letters=False)  # fmt: skip
    submit(tree, flow, order)
    tree.remove_ephemeral("agents/a-node")
    return tree


CommandRunner = Callable[..., str]


@pytest.fixture
def run_driftline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandRunner:
    """Return a function that runs a command in an empty directory and returns its output."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, status: int) -> str:
        monkeypatch.setattr("sys.argv", ["driftline", *words])
        capsys.readouterr()
        found = driftline._status()
        captured = capsys.readouterr()
        assert (found if isinstance(found, int) else 0) == status, captured.out + captured.err
        return captured.out + captured.err

    return run


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["statu"], 2, "No such command 'statu' (did you mean 'status'?)"),
        (["stop", "count"], 1,
         "has no flow 'count' (did you mean 'counts'?); it has counts"),
        (["stop", "counts", "--wait", "0.1"], 1,
         "flow counts waits: agent a-node is not running\n"
         "waiting for its end; `driftline cancel counts` ends it at once"),
        (["savepoint", "counts", "--output", "s", "--state", ".",
          "--zookeeper", "x"], 2, "--zookeeper cannot be given with --state"),
        (["submit", "flow.py", "--input", "a=x", "--output", "/o"], 1,
         "flow 'counts' has the source lines"),
        (["submit", "flow.py", "--input", "no.jsonl", "--output", "/o",
          "--name", "other"], 1, "there is no agent for nodes: start `driftline agent`"),
        (["submit", "flow.py", "--input", "tcp://1", "--output", "/o",
          "--name", "other"], 1, "cannot listen for producers on tcp://1: "),
    ],
)  # fmt: skip
def test_command_reports_expected_message(
    words: list[str], status: int, message: str, tree: ZooKeeperTree, run_driftline: CommandRunner
) -> None:
    assert message in run_driftline(*words, status=status)


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (["stop", "count"], 1, "has no flow 'count'"),
        (["stop", "counts", "--wait", "x"], 2, "Invalid value for '--wait'"),
        (["rescale", "counts", "0"], 2, "Invalid value for 'N'"),
        (["status", "none"], 1, "has no flow 'none'"),
        (["remove", "none"], 1, "has no flow 'none'"),
        (["remove", "counts"], 1, "flow 'counts' runs"),
        (["savepoint", "counts", "--output", "s"], 1, "flow 'counts' has no snapshot yet"),
        (["verify", "counts"], 3, "flow 'counts' is still running"),
        (["submit", "flow.py", "--input", "in.jsonl"], 2, "Missing option '--output'"),
    ],
)
def test_failed_command_overwrites_json_file_with_error(
    words: list[str],
    status: int,
    error: str,
    tree: ZooKeeperTree,
    tmp_path: Path,
    run_driftline: CommandRunner,
) -> None:
    file = tmp_path / "result.json"
    file.write_text('{"error": null}')
    run_driftline(*words, "--json", str(file), status=status)
    assert error in json.loads(file.read_text())["error"]


def test_command_without_required_key_reports_the_missing_key(
    tree: ZooKeeperTree, tmp_path: Path, run_driftline: CommandRunner
) -> None:
    public = "ZTkD)lNz/f.]P%UVG{NLeO>A$L!I55UJ:W4b}cU{"
    keyed = AgentRecord("a-node", (AgentRole.NODE,), "host", 2, public=public)
    tree.put_ephemeral("agents/a-node", keyed.encode())
    needed = "this cluster has keys: give --bind and --keys"
    status = run_driftline("status", "counts", status=0)
    assert status.startswith(f"counts: not known: {needed}\n")
    assert "not asked" in status
    assert "dropped a message" not in status
    add_keys(tmp_path / "keys", ["here"], {"shop": ["lines"]})
    with_keys = "--bind", "127.0.0.1", "--keys", "keys/here.key"
    other = "these --keys do not belong to this cluster"
    status = run_driftline("status", "counts", *with_keys, status=0)
    assert status.startswith(f"counts: not known: {other}")
    assert "dropped a message" not in status
    own = read_key(tmp_path / "keys/here.key").public
    known = replace(keyed, public=own)
    tree.put_ephemeral("agents/a-node", known.encode())
    status = run_driftline("status", "counts", *with_keys, status=0)
    assert status.startswith("counts: starting: no master answers yet")


def test_savepoint_requires_the_agents_of_all_nodes(
    tree: ZooKeeperTree, tmp_path: Path, run_driftline: CommandRunner
) -> None:
    registry = tree.registry("counts")
    state = registry.read()
    assert state is not None
    snapshot = SnapshotRecord(1, 1, (1,))
    registry.write(state.next(snapshots=(snapshot,)))
    saving = "savepoint", "counts", "--output", "s"
    output = run_driftline(*saving, status=1)
    assert "agent a-node is not running, and has the state of node-0: start it" in output
    assert not (tmp_path / "s").exists()


def test_status_without_agents_explains_how_to_start_them(
    tree: ZooKeeperTree, run_driftline: CommandRunner
) -> None:
    tree.remove_ephemeral("agents/m")
    tree.remove_ephemeral("agents/a-front")
    assert "no agents are running: start `driftline" in run_driftline("status", status=0)


def test_submit_warns_that_an_agent_of_the_flow_is_missing(
    tree: ZooKeeperTree, tmp_path: Path, run_driftline: CommandRunner
) -> None:
    assert fail(tree, submission_of(tree, "counts"), CANCELLED, "a test")
    more = "--input", "in.jsonl", "--output", str(tmp_path / "out")
    output = run_driftline("submit", "flow.py", *more, "--accept-changed-code", status=0)
    assert "agent a-node is not running: the flow waits for it" in output


def test_status_of_one_flow_omits_other_flows(
    tree: ZooKeeperTree, run_driftline: CommandRunner
) -> None:
    alone = run_driftline("status", "counts", status=0)
    assert alone.startswith("counts: starting: no master answers yet\n  policy exactly-once")
    assert "agents" not in alone
    assert "used by" in run_driftline("status", status=0)
    assert all(line == line.rstrip() for line in alone.splitlines()[:2]), (
        "lines have no trailing blanks"
    )
    tree.remove("flows/counts")
    none = run_driftline("status", status=0)
    assert none.startswith("no flows: `driftline submit` begins one\n")
