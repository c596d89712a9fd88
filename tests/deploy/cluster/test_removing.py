"""Commands on flows that another command changes concurrently, or whose submission was interrupted.

Checks which records remain, the error, and the remedy.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner

from driftline.deploy.cluster.records import AgentRole, DesiredState, Submission
from driftline.deploy.cluster.status import ClusterStatus, status_of
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    RunReplaced,
    fail,
    path_of,
    registry_path,
    remove,
    submission_of,
)
from driftline.deploy.cluster.submitting import submit
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperNode, ZooKeeperTree
from driftline.deploy.commands import flows
from driftline.engine.errors import StateMismatch, Unavailable
from tests.deploy.cluster.test_submitting import flow, submit_request
from tests.zookeepers import show


@pytest.fixture
def tree(empty_tree: ZooKeeperTree) -> ZooKeeperTree:
    """Provide a cluster with one agent."""
    show(empty_tree, "a", *AgentRole, slots=8)
    return empty_tree


def command(tree: ZooKeeperTree, chosen: Command, *words: str) -> str:
    """Run a command in this process and return its output; raise its error."""
    arguments = [*words, "--zookeeper", tree.zookeeper]
    done = CliRunner().invoke(chosen, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def end_and_resubmit(tree: ZooKeeperTree, before: Submission) -> Submission:
    """Cancel an active run, submit the next one, and let its master write to the registry."""
    fail(tree, before, CANCELLED, "by another command")
    made = submit(tree, flow(), submit_request(before.name))
    registry = tree.registry(before.name)
    state = registry.read()
    assert state is not None
    registry.write(state.next(outcome=None, last_session=made.session))
    return made


def followed_by(real: Callable[..., object], then: Callable[[], object]) -> Callable[..., object]:
    """Return the function, followed on its first call by the action of another command."""
    acts = [then]

    def called(*arguments: object) -> object:
        found = real(*arguments)
        if acts:
            acts.pop()()
        return found

    return called


def test_cancel_does_not_affect_a_resubmitted_run(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(tree, flow(), submit_request())
    monkeypatch.setattr(flows, "fail", followed_by(fail, lambda: end_and_resubmit(tree, first)))
    assert "flow sums has ended: cancelled by a command" in command(tree, flows.cancel, "sums")
    second = submission_of(tree, "sums")
    assert (second.run != first.run, second.desired_state) == (True, DesiredState.RUN)

    monkeypatch.undo()
    late = followed_by(submission_of, lambda: end_and_resubmit(tree, second))
    monkeypatch.setattr(flows, "submission_of", late)
    with pytest.raises(RunReplaced, match="was submitted again, or removed, meanwhile"):
        command(tree, flows.cancel, "sums")
    state = tree.registry("sums").read()
    assert state is not None
    assert state.outcome is None, "the third run continues"
    assert submission_of(tree, "sums").desired_state is DesiredState.RUN


def test_remove_is_rejected_if_the_flow_was_resubmitted(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(tree, flow(), submit_request())
    with pytest.raises(StateMismatch, match="runs: `driftline stop sums` ends it first"):
        remove(tree, "sums")
    fail(tree, first, CANCELLED, "by a test")
    begun = followed_by(tree._with_versions, lambda: end_and_resubmit(tree, first))
    monkeypatch.setattr(tree, "_with_versions", begun)
    with pytest.raises(StateMismatch, match="flow 'sums' runs"):
        remove(tree, "sums")
    fail(tree, submission_of(tree, "sums"), CANCELLED, "by a test")
    assert remove(tree, "sums") is not None
    assert tree.children("flows") == []


class CommandKilled(BaseException):
    """Death of the command's process."""


def wheel(tmp_path: Path) -> Path:
    """Create a wheel that is stored in two pieces."""
    file = tmp_path / "sums-1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("sums-1.dist-info/WHEEL", "Root-Is-Purelib: true")
        archive.writestr("large", bytes(600_000))
    return file


def cluster_status(tree: ZooKeeperTree, tmp_path: Path, name: str = "") -> ClusterStatus:
    return status_of(tree, tmp_path, only=name, answer_s=0)


def test_interrupted_submission_leaves_no_flow(
    tree: ZooKeeperTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = submit_request(wheel=wheel(tmp_path))

    write = tree.write_together

    def fail_at_submission(entries: Mapping[str, ZooKeeperNode]) -> None:
        if path_of("sums") in entries:
            raise CommandKilled
        write(entries)

    for rest in ("given again", "removed"):
        with monkeypatch.context() as patch:
            patch.setattr(tree, "write_together", fail_at_submission)
            with pytest.raises(CommandKilled):
                submit(tree, flow(), sent)
        assert (cluster_status(tree, tmp_path).flows, cluster_status(tree, tmp_path).damaged) == (
            (),
            (),
        )
        with pytest.raises(Unavailable, match="has no flow 'sums'; it has no flow at all"):
            command(tree, flows.stop, "sums", "--wait", "0")
        if rest == "removed":
            assert "flow sums is removed" in command(tree, flows.remove, "sums")
            assert tree.children("flows") == []
        made = submit(tree, flow(), sent)
        assert submission_of(tree, "sums") == made
        fail(tree, made, CANCELLED, "by a test")
        assert remove(tree, "sums") == made
        assert tree.children("flows") == []


def test_resubmission_after_remove_starts_a_new_lineage(
    tree: ZooKeeperTree, tmp_path: Path
) -> None:
    first = submit(tree, flow(), submit_request(wheel=wheel(tmp_path)))
    fail(tree, first, CANCELLED, "by a test")
    remove(tree, "sums")
    assert tree.masters("sums", lambda: None).leader() == ("", ""), "this creates the queue"
    assert cluster_status(tree, tmp_path).damaged == (), "a queue alone does not make a flow"
    assert submit(tree, flow(), submit_request()).lineage != first.lineage


@pytest.mark.parametrize("lost", [path_of("sums"), registry_path("sums")])
@pytest.mark.parametrize("damage", [b"garbage", b"[" * 200_000, None])
def test_flow_with_damaged_or_lost_records_can_be_removed(
    lost: str, damage: bytes | None, tree: ZooKeeperTree, tmp_path: Path
) -> None:
    submit(tree, flow(), submit_request())
    if damage is None:
        tree.remove(lost)
    else:
        tree.write(lost, damage, 0)
    message = "`driftline remove sums` removes the flow"
    with pytest.raises(StateMismatch, match=message):
        submit(tree, flow(), submit_request())
    if (lost, damage) != (path_of("sums"), None):
        found = cluster_status(tree, tmp_path, "sums")
        reasons = [why for _, why in found.damaged] + [t for f in found.flows for t in f.problems]
        assert message in reasons[0]
        with pytest.raises(StateMismatch, match=message):
            command(tree, flows.cancel, "sums")
    command(tree, flows.remove, "sums")
    assert tree.children("flows") == []
    submit(tree, flow(), submit_request())


def test_remove_rejects_names_that_are_not_flows(tree: ZooKeeperTree) -> None:
    submit(tree, flow(), submit_request())
    for name in ("..", "../..", ".", "", "../agents"):
        with pytest.raises(Unavailable, match="has no flow"):
            remove(tree, name)
    assert (tree.children("flows"), tree.children("agents")) == (["sums"], ["a"])
