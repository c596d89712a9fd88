"""Commands on a flow that another command changes meanwhile, or that was cut short: what is left,
what is told, and what helps."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner

from driftline.coordinator.registry import ClusterState, FileRegistry, Registry
from driftline.deploy.cluster import submissions as removing
from driftline.deploy.cluster.records import AgentRecord, Kind, Submission, Wish
from driftline.deploy.cluster.status import ClusterStatus, status_of
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    Replaced,
    ended_by,
    fail,
    has_records,
    path_of,
    remove,
    submission_of,
)
from driftline.deploy.cluster.submitting import submit
from driftline.deploy.cluster.tree.folder import Folder
from driftline.deploy.cluster.tree.tree import Conflict
from driftline.deploy.cluster.tree.znodes import ZNodes
from driftline.deploy.commands.cluster import flows
from driftline.deploy.zookeeper.ensemble import Ensemble
from driftline.engine.errors import StateMismatch, Unavailable
from tests.deploy.cluster.test_submitting import flow, order, sums_otherwise
from tests.zookeepers import SESSION_S


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Folder]:
    """A cluster with an agent of each kind."""
    tree = Folder(tmp_path / "reg")
    for name, kind in (("m", Kind.MASTER), ("n", Kind.NODE), ("f", Kind.FRONT)):
        tree.hold(f"agents/{name}", AgentRecord(name, kind, "host", 4).encode())
    yield tree
    tree.close()


def command(tree: Folder, chosen: Command, *words: str) -> str:
    """What a command says. Raises its error."""
    folder = tree.where.removeprefix("registry ")
    done = CliRunner().invoke(chosen, [*words, "--registry", folder], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def again(tree: Folder, before: Submission) -> Submission:
    """End a run, if it goes on, and begin the next one, whose master has begun to write."""
    fail(tree, before, CANCELLED, "by another command")
    made = submit(tree, flow(), order(before.name))
    registry = tree.registry(before.name)
    state = registry.read()
    assert state is not None
    registry.write(state.next(outcome=None, opened=made.session))
    return made


def after(real: Callable[..., object], then: Callable[[], object]) -> Callable[..., object]:
    """The same function; but once it is done, another command acts, the first time."""
    acts = [then]

    def called(*given: object) -> object:
        found = real(*given)
        if acts:
            acts.pop()()
        return found

    return called


def test_cancel_ends_the_run_that_it_was_meant_for_and_no_later_one(
    tree: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(tree, flow(), order())
    monkeypatch.setattr(flows, "fail", after(fail, lambda: again(tree, first)))
    assert "flow sums is over: cancelled by a command" in command(tree, flows.cancel, "sums")
    second = submission_of(tree, "sums")
    assert (second.run != first.run, second.wish) == (True, Wish.RUN)

    monkeypatch.undo()
    late = after(submission_of, lambda: again(tree, second))
    monkeypatch.setattr(flows, "submission_of", late)
    with pytest.raises(Replaced, match="was submitted again, or removed, meanwhile"):
        command(tree, flows.cancel, "sums")
    state = tree.registry("sums").read()
    assert state is not None
    assert state.outcome is None, "the third one goes on"
    assert submission_of(tree, "sums").wish is Wish.RUN


def test_stop_asks_the_run_that_it_was_meant_for_and_no_later_one(
    tree: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(tree, flow(), order())
    monkeypatch.setattr(flows, "submission_of", after(submission_of, lambda: again(tree, first)))
    with pytest.raises(Replaced, match="nothing is asked of a later one"):
        command(tree, flows.stop, "sums")
    assert submission_of(tree, "sums").wish is Wish.RUN


def test_who_waits_for_an_end_is_told_of_what_has_come_after_it(
    tree: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(tree, flow(), order())
    acts = [lambda: again(tree, first)]
    monkeypatch.setattr(flows, "sleep", lambda _: acts.pop()())
    with pytest.raises(Replaced, match="was submitted again"):
        command(tree, flows.stop, "sums")

    second = submission_of(tree, "sums")

    def removed() -> object:
        fail(tree, second, CANCELLED, "by another command")
        return remove(tree, "sums")

    monkeypatch.setattr(flows, "sleep", lambda _: removed())
    with pytest.raises(Replaced, match="or removed, meanwhile"):
        command(tree, flows.stop, "sums")


def test_a_flow_that_was_submitted_again_meanwhile_is_not_removed(
    tree: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(tree, flow(), order())
    with pytest.raises(StateMismatch, match="runs: `driftline stop sums` ends it first"):
        remove(tree, "sums")
    fail(tree, first, CANCELLED, "by a test")
    monkeypatch.setattr(removing, "has_records", after(has_records, lambda: again(tree, first)))
    with pytest.raises(StateMismatch, match="flow 'sums' runs"):
        remove(tree, "sums")
    fail(tree, submission_of(tree, "sums"), CANCELLED, "by a test")
    assert remove(tree, "sums") is not None
    assert tree.children("flows") == []


def test_a_flow_that_is_removed_while_it_is_submitted_is_there_as_a_whole_or_not_at_all(
    tree: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tree.write

    def write(path: str, data: bytes, version: int) -> None:
        assert remove(tree, "sums") is None, "the registry is there, and no submission yet"
        real(path, data, version)

    monkeypatch.setattr(tree, "write", write)
    with pytest.raises(Conflict, match="flow 'sums' was removed by another command"):
        submit(tree, flow(), order())
    assert tree.children("flows") == []


class Killed(BaseException):
    """The command is killed."""


class Cut(Folder):
    """A tree whose user is killed before one of its writes."""

    left = 0

    def count(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1

    def write(self, path: str, data: bytes, version: int) -> None:
        self.count()
        super().write(path, data, version)

    def registry(self, flow: str) -> Registry:
        return _CutRegistry(self, self.registry_file(flow))


class _CutRegistry:
    def __init__(self, tree: Cut, path: Path) -> None:
        self._tree = tree
        self._real = FileRegistry(path)

    def read(self) -> ClusterState | None:
        return self._real.read()

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        self._tree.count()
        self._real.write(state, again=again)


def wheel(tmp_path: Path) -> Path:
    """A wheel of two pieces."""
    file = tmp_path / "sums-1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("sums-1.dist-info/WHEEL", "Root-Is-Purelib: true")
        archive.writestr("large", bytes(600_000))
    return file


def look(tree: Folder, tmp_path: Path, name: str = "") -> ClusterStatus:
    return status_of(tree, tmp_path, only=name, answer_s=0)


@pytest.mark.parametrize("writes", range(4))
def test_a_submission_that_was_cut_short_anywhere_is_seen_and_hinders_nothing(
    writes: int, tree: Folder, tmp_path: Path
) -> None:
    cut = Cut(tmp_path / "reg")
    sent = order(wheel=wheel(tmp_path))
    for rest in ("given again", "removed"):
        cut.left = writes
        with pytest.raises(Killed):
            submit(cut, flow(), sent)
        lost = dict(look(tree, tmp_path).damaged)
        assert list(lost) == ["sums"] * (writes > 0)
        if writes:
            assert "submitted in part only" in lost["sums"]
            assert look(tree, tmp_path, "sums").damaged == tuple(lost.items())
            with pytest.raises(StateMismatch, match="`driftline remove sums`, which takes"):
                command(tree, flows.stop, "sums", "--wait", "0")
        submit(tree, flow(), order("other"))
        if rest == "removed":
            if writes:
                assert "flow sums is removed" in command(tree, flows.remove, "sums")
            assert tree.children("flows") == ["other"]
            other = replace(sent.reading, inputs=("b.jsonl",))
            made = submit(tree, flow(sums_otherwise), order(reading=other))
        else:
            made = submit(tree, flow(), sent)
        assert submission_of(tree, "sums") == made
        for name in ("sums", "other"):
            fail(tree, submission_of(tree, name), CANCELLED, "by a test")
            remove(tree, name)
    assert tree.children("flows") == []
    with pytest.raises(Unavailable, match="has no flow 'sums'; it has no flow at all"):
        look(tree, tmp_path, "sums")


def test_what_another_flow_has_left_is_told_and_removed(tree: Folder, tmp_path: Path) -> None:
    cut = Cut(tmp_path / "reg")
    cut.left = 1
    with pytest.raises(Killed):
        submit(cut, flow(), order())
    other = order(reading=replace(order().reading, inputs=("b.jsonl",)))
    with pytest.raises(StateMismatch, match="begin anew with `driftline remove sums`"):
        submit(tree, flow(), other)
    command(tree, flows.remove, "sums")
    submit(tree, flow(), other)


def test_a_flow_whose_registry_or_submission_somebody_has_removed(
    tree: Folder, tmp_path: Path
) -> None:
    made = submit(tree, flow(), order())
    tree.registry_file("sums").unlink()
    told = "has lost what flow 'sums' has decided, its registry: `driftline remove sums` takes"
    for act in (
        lambda: command(tree, flows.cancel, "sums"),
        lambda: command(tree, flows.stop, "sums"),
        lambda: submit(tree, flow(), order()),
    ):
        with pytest.raises(StateMismatch, match=told):
            act()
    assert told in look(tree, tmp_path).flows[0].trouble[0]
    assert "remove the directory flows/sums" in command(tree, flows.remove, "sums")

    again(tree, submit(tree, flow(), order()))
    (tmp_path / "reg" / "flows" / "sums" / "=submission").unlink()
    with pytest.raises(StateMismatch, match=r"lost its submission, .*: `driftline remove sums`"):
        submit(tree, flow(), order())
    assert remove(tree, "sums") is None
    assert submit(tree, flow(), order()).lineage != made.lineage


def test_a_flow_whose_records_are_damaged_is_removed(tree: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "reg" / "flows" / "sums"
    for damaged, data in (
        ("=submission", b"0\ngarbage"),
        ("=submission", b"0\n" + b"[" * 200_000),
        ("registry", b"garbage"),
    ):
        submit(tree, flow(), order())
        (folder / damaged).write_bytes(data)
        with pytest.raises(StateMismatch, match="`driftline remove sums` takes the flow away"):
            submit(tree, flow(), order())
        found = look(tree, tmp_path, "sums")
        told = [why for _, why in found.damaged] + [t for f in found.flows for t in f.trouble]
        assert "`driftline remove sums` takes the flow away" in told[0]
        command(tree, flows.remove, "sums")
        assert tree.children("flows") == []


def test_without_slots_for_more_nodes_nothing_is_written(tree: Folder) -> None:
    first = submit(tree, flow(), order())
    fail(tree, first, CANCELLED, "by a test")
    before = tree.registry("sums").read()
    with pytest.raises(Unavailable, match="9 node processes needed"):
        submit(tree, flow(sums_otherwise), order(nodes=9))
    assert tree.registry("sums").read() == before
    assert submission_of(tree, "sums") == first


@pytest.mark.parametrize("name", ["..", "../..", ".", "", "../agents"])
def test_nothing_but_a_flow_is_removed(name: str, tree: Folder, tmp_path: Path) -> None:
    submit(tree, flow(), order())
    with pytest.raises(Unavailable, match="has no flow"):
        remove(tree, name)
    assert tree.children("flows") == ["sums"]
    assert tree.children("agents") == ["f", "m", "n"]


def test_a_removal_that_was_killed_leaves_nothing_to_see(
    tree: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, **given: object) -> None:
        if path.exists():
            raise Killed

    fail(tree, submit(tree, flow(), order()), CANCELLED, "by a test")
    monkeypatch.setattr("driftline.deploy.cluster.tree.folder.shutil.rmtree", killed)
    with pytest.raises(Killed):
        remove(tree, "sums")
    monkeypatch.undo()
    assert tree.children("flows") == []
    fail(tree, submit(tree, flow(), order()), CANCELLED, "by a test")
    remove(tree, "sums")


def test_outputs_in_one_directory_by_two_paths_are_refused(tree: Folder, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    first = submit(tree, flow(), order(output=tmp_path / "out" / "sums"))
    for path in ("out/../out/sums", "link/sums", "out//sums/."):
        with pytest.raises(StateMismatch, match="flow 'sums' has its outputs in"):
            submit(tree, flow(), order("other", output=Path(f"{tmp_path}/{path}")))
    fail(tree, first, CANCELLED, "by a test")
    submit(tree, flow(), order(output=tmp_path / "link" / "sums"))


def test_a_flow_that_an_earlier_version_has_cancelled_in_part_says_what_ends_it(
    tree: Folder, tmp_path: Path
) -> None:
    made = submit(tree, flow(), order())
    entry = tree.read(path_of("sums"))
    assert entry is not None
    cancelled = replace(made, wish=Wish.CANCEL).encode()
    tree.write(path_of("sums"), cancelled, entry.version)
    told = "cancelled, but not over: `driftline cancel sums` ends it"
    assert look(tree, tmp_path).flows[0].state == told
    command(tree, flows.cancel, "sums")
    assert look(tree, tmp_path).flows[0].state == "cancelled"


def test_in_zookeeper_a_flow_is_removed_as_a_whole_and_not_what_has_come_meanwhile(
    zookeeper: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ZNodes(f"{zookeeper.addresses}/removing", SESSION_S)) as tree:
        for name, kind in (("m", Kind.MASTER), ("n", Kind.NODE), ("f", Kind.FRONT)):
            tree.hold(f"agents/{name}", AgentRecord(name, kind, "host", 4).encode())
        first = submit(tree, flow(), order(wheel=wheel(tmp_path)))
        assert tree.masters("sums", lambda: None).leader() == ("", ""), "it makes the queue"
        assert status_of(tree, tmp_path, answer_s=0).damaged == ()
        fail(tree, first, CANCELLED, "by a test")
        begun = after(ended_by, lambda: submit(tree, flow(), order()))
        monkeypatch.setattr(removing, "ended_by", begun)
        with pytest.raises(StateMismatch, match="flow 'sums' runs"):
            remove(tree, "sums")
        fail(tree, submission_of(tree, "sums"), CANCELLED, "by a test")
        remove(tree, "sums")
        assert tree.children("flows") == []
        tree.masters("sums", lambda: None).leader()
        assert status_of(tree, tmp_path, answer_s=0).damaged == (), "a queue alone is nothing"
        assert submit(tree, flow(), order()).lineage != first.lineage
