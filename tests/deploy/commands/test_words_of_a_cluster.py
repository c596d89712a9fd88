"""What the commands of a cluster say to somebody who mistypes, or is too early."""

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
    """A cluster with one flow, whose agents do nothing; that of its node is away."""
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


Said = Callable[..., str]


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Said:
    """Runs a command as the program does, in a directory of its own. Returns what it prints."""
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
         "driftline: waiting for its end; `driftline cancel counts` ends it at once"),
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
    words: list[str], status: int, message: str, tree: ZooKeeperTree, said: Said
) -> None:
    assert message in said(*words, status=status)


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
    words: list[str], status: int, error: str, tree: ZooKeeperTree, tmp_path: Path, said: Said
) -> None:
    file = tmp_path / "result.json"
    file.write_text('{"error": null}')
    said(*words, "--json", str(file), status=status)
    assert error in json.loads(file.read_text())["error"]


def test_command_without_required_key_reports_the_missing_key(
    tree: ZooKeeperTree, tmp_path: Path, said: Said
) -> None:
    public = "ZTkD)lNz/f.]P%UVG{NLeO>A$L!I55UJ:W4b}cU{"
    keyed = AgentRecord("a-node", (AgentRole.NODE,), "host", 2, public=public)
    tree.put_ephemeral("agents/a-node", keyed.encode())
    needed = "this cluster has keys: give --bind and --keys"
    status = said("status", "counts", status=0)
    assert status.startswith(f"counts: not known: {needed}\n")
    assert "not asked" in status
    assert "dropped a message" not in status
    add_keys(tmp_path / "keys", ["here"], {"shop": ["lines"]})
    with_keys = "--bind", "127.0.0.1", "--keys", "keys/here.key"
    other = "these --keys do not belong to this cluster"
    status = said("status", "counts", *with_keys, status=0)
    assert status.startswith(f"counts: not known: {other}")
    assert "dropped a message" not in status
    own = read_key(tmp_path / "keys/here.key").public
    known = replace(keyed, public=own)
    tree.put_ephemeral("agents/a-node", known.encode())
    status = said("status", "counts", *with_keys, status=0)
    assert status.startswith("counts: starting: no master answers yet")


def test_a_savepoint_is_not_begun_without_the_agents_of_all_nodes(
    tree: ZooKeeperTree, tmp_path: Path, said: Said
) -> None:
    registry = tree.registry("counts")
    state = registry.read()
    assert state is not None
    snapshot = SnapshotRecord(1, 1, (1,))
    registry.write(state.next(snapshots=(snapshot,)))
    saving = "savepoint", "counts", "--output", "s"
    output = said(*saving, status=1)
    assert "agent a-node is not running, and has the state of node-0: start it" in output
    assert not (tmp_path / "s").exists()


def test_a_cluster_without_agents_says_how_to_start_them(tree: ZooKeeperTree, said: Said) -> None:
    tree.remove_ephemeral("agents/m")
    tree.remove_ephemeral("agents/a-front")
    assert "no agents are running: start `driftline" in said("status", status=0)


def test_submit_notes_that_an_agent_of_the_flow_is_away(
    tree: ZooKeeperTree, tmp_path: Path, said: Said
) -> None:
    assert fail(tree, submission_of(tree, "counts"), CANCELLED, "a test")
    more = "--input", "in.jsonl", "--output", str(tmp_path / "out")
    output = said("submit", "flow.py", *more, "--accept-changed-code", status=0)
    assert "note: agent a-node is not running: the flow waits for it" in output


def test_the_status_of_one_flow_is_of_that_flow_alone(tree: ZooKeeperTree, said: Said) -> None:
    alone = said("status", "counts", status=0)
    assert alone.startswith("counts: starting: no master answers yet\n  policy exactly-once")
    assert "agents" not in alone
    assert "taken by" in said("status", status=0)
    assert all(line == line.rstrip() for line in alone.splitlines()[:2]), "no blanks at the end"
    tree.remove("flows/counts")
    none = said("status", status=0)
    assert none.startswith("no flows: `driftline submit` begins one\n")
