"""One contract for both trees: a directory, and ZooKeeper with a real server."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from driftline.deploy.cluster.tree import folder
from driftline.deploy.cluster.tree.folder import Folder
from driftline.deploy.cluster.tree.tree import NEW, Conflict, Entry, Tree
from driftline.deploy.cluster.tree.znodes import ZNodes
from driftline.deploy.commands.cluster.places import Place
from driftline.deploy.zookeeper.ensemble import Ensemble
from driftline.engine.errors import InUse, StateMismatch, Unavailable
from tests.zookeepers import SESSION_S, WAIT_S

Open = Callable[[], Tree]


@pytest.fixture(params=["folder", "zookeeper"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same tree, each time as another process would."""
    with ExitStack() as stack:
        if request.param == "folder":

            def make() -> Tree:
                return Folder(tmp_path / "tree")

        else:
            ensemble: Ensemble = request.getfixturevalue("zookeeper")
            path = f"{ensemble.addresses}/trees/{request.node.name}"

            def make() -> Tree:
                return ZNodes(path, SESSION_S)

        def open_one() -> Tree:
            tree = make()
            stack.callback(tree.close)
            return tree

        yield open_one


def test_what_is_written_is_read_by_others_and_of_two_writers_one_is_refused(opened: Open) -> None:
    one, other = opened(), opened()
    assert one.read("flows/a/submission") is None
    assert one.children("flows") == []
    one.write("flows/a/submission", b"first", NEW)
    found = other.read("flows/a/submission")
    assert found == Entry(b"first", 0)
    other.write("flows/a/submission", b"second", 0)
    with pytest.raises(Conflict):
        one.write("flows/a/submission", b"third", 0)
    with pytest.raises(Conflict):
        one.write("flows/a/submission", b"third", NEW)
    with pytest.raises(Conflict):
        one.write("flows/b/submission", b"third", 3)
    assert one.read("flows/a/submission") == Entry(b"second", 1)
    one.write("flows/b/submission", b"", NEW)
    assert other.children("flows") == ["a", "b"]
    other.remove("flows/a")
    other.remove("flows/a")
    assert one.children("flows") == ["b"]
    assert one.read("flows/a/submission") is None


def test_what_is_held_is_there_as_long_as_its_holder(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "HELD_S", 0.2)
    monkeypatch.setattr("driftline.deploy.cluster.tree.znodes.HELD_S", 0.2)
    one, other = opened(), opened()
    one.hold("agents/a", b"1")
    one.hold("agents/a", b"2")
    assert other.children("agents") == ["a"]
    found = other.read("agents/a")
    assert found is not None
    assert found.data == b"2"
    with pytest.raises(InUse, match="belongs to another process"):
        other.hold("agents/a", b"3")
    one.let_go("agents/a")
    one.let_go("agents/a")
    assert other.children("agents") == []
    one.hold("agents/b", b"")
    one.close()
    assert other.children("agents") == []
    other.hold("agents/b", b"again")
    assert other.children("agents") == ["b"]


def test_who_is_refused_leaves_the_holder_in_its_place(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "HELD_S", 0.2)
    monkeypatch.setattr("driftline.deploy.cluster.tree.znodes.HELD_S", 0.2)
    one, other = opened(), opened()
    one.hold("agents/a", b"1")
    other.let_go("agents/a")
    with pytest.raises(InUse):
        other.hold("agents/a", b"2")
    other.let_go("agents/a")  # as an agent does on its way out
    assert one.children("agents") == ["a"]
    other.close()
    found = one.read("agents/a")
    assert found is not None
    assert found.data == b"1"


def test_what_was_lost_and_taken_by_another_is_not_removed(
    zookeeper: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftline.deploy.cluster.tree.znodes.HELD_S", 0.2)
    path = f"{zookeeper.addresses}/trees/lost"
    with ExitStack() as stack:
        one, heir = ZNodes(path, SESSION_S), ZNodes(path, SESSION_S)
        stack.callback(one.close)
        stack.callback(heir.close)
        one.hold("agents/a", b"1")
        heir.succeed(one.holder())
        heir.hold("agents/a", b"2")
        one.let_go("agents/a")
        assert heir.children("agents") == ["a"]


def test_an_heir_does_not_wait_for_the_session_of_the_one_before(opened: Open) -> None:
    one, other, third = opened(), opened(), opened()
    one.hold("agents/a", b"1")
    if not one.zookeeper:
        assert one.holder() == ""  # the kernel lets go at once
        return
    other.succeed(one.holder())
    other.hold("agents/a", b"2")
    found = third.read("agents/a")
    assert found is not None
    assert found.data == b"2"
    one.close()
    assert third.children("agents") == ["a"]


def test_changes_are_told_or_looked_for(opened: Open) -> None:
    one, other = opened(), opened()
    changed = threading.Event()
    one.on_change(changed.set)
    assert one.read("flows/a/submission") is None
    assert one.children("agents") == []
    changed.clear()
    other.write("flows/a/submission", b"", NEW)
    assert changed.wait(WAIT_S) if one.zookeeper else one.look_every_s < 1
    changed.clear()
    other.hold("agents/x", b"")
    assert changed.wait(WAIT_S) if one.zookeeper else one.children("agents") == ["x"]


def test_the_registry_of_a_flow_is_beside_its_submission(opened: Open) -> None:
    one, other = opened(), opened()
    one.write("flows/a/submission", b"", NEW)
    assert one.registry("a").read() is None
    assert other.masters("a", lambda: None).leader() == ("", "")
    assert other.children("flows") == ["a"]


def test_what_was_removed_or_overwritten_by_others_is_held_again(opened: Open) -> None:
    one, other = opened(), opened()
    woken = threading.Event()
    one.on_change(woken.set)
    one.hold("agents/a", b"1")
    one.hold("agents/b", b"2")
    one.renew()
    woken.clear()
    other.remove("agents/a")
    found = other.read("agents/b")
    assert found is not None
    other.write("agents/b", b"garbage", found.version)
    assert not one.zookeeper or woken.wait(WAIT_S), "it is told, and need not look"
    one.renew()
    assert other.children("agents") == ["a", "b"]
    assert [entry.data for name in "ab" if (entry := other.read(f"agents/{name}"))] == [b"1", b"2"]
    one.close()
    assert other.children("agents") == [], "it ends with its holder, as before"


@pytest.mark.parametrize(("name", "version"), [("submission", 0), ("wheels/b", NEW)])
def test_what_is_written_while_a_removal_looks_is_not_removed_unseen(
    opened: Open, name: str, version: int
) -> None:
    one, other = opened(), opened()
    for each in ("submission", "wheels/a"):
        one.write(f"flows/a/{each}", b"", NEW)
    one.write("flows/ab/submission", b"", NEW)
    wrote: list[bool] = []

    def write() -> None:
        try:
            other.write(f"flows/a/{name}", b"new", version)
        except Conflict:
            return
        wrote.append(True)

    writer = threading.Thread(target=write)

    def check() -> None:
        writer.start()
        writer.join(0.2)  # or longer: a folder lets it write only once this has removed

    try:
        one.remove("flows/a", check)
        removed = True
    except Conflict:
        removed = False
    writer.join()
    left = [path for path in ("submission", "wheels/a", "wheels/b") if one.read(f"flows/a/{path}")]
    if removed:
        assert left == ["wheels/b"] * (version == NEW), "the writer came after it"
    else:
        assert wrote
        assert left == ["submission", "wheels/a", *["wheels/b"] * (version == NEW)]
    one.remove("flows/a")
    assert one.children("flows") == ["ab"]


def test_what_may_not_be_removed_stays(opened: Open) -> None:
    tree = opened()
    tree.write("flows/a/submission", b"", NEW)

    def refused() -> None:
        raise StateMismatch("it runs")

    with pytest.raises(StateMismatch, match="it runs"):
        tree.remove("flows/a", refused)
    assert tree.read("flows/a/submission") == Entry(b"", 0)


def test_a_full_disk_is_told_without_a_name_that_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Folder(tmp_path)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder, "replace_file", full)
    with pytest.raises(Unavailable, match=r"No space left on device$"):
        tree.write("flows/a/submission", b"", NEW)


def test_a_damaged_file_of_a_tree_is_told(tmp_path: Path) -> None:
    tree = Folder(tmp_path)
    tree.write("flows/a/submission", b"x", NEW)
    (tmp_path / "flows" / "a" / "=submission").write_bytes(b"garbage")
    with pytest.raises(StateMismatch, match="=submission is damaged"):
        tree.read("flows/a/submission")


def test_a_directory_that_is_gone_is_told_and_held_again_once_it_is_back(tmp_path: Path) -> None:
    tree = Folder(tmp_path / "tree")
    tree.hold("agents/a", b"1")
    (tmp_path / "tree").rename(tmp_path / "away")
    for ask in (
        lambda: tree.read("flows/a/submission"),
        lambda: tree.children("flows"),
        tree.renew,
    ):
        with pytest.raises(Unavailable, match="is gone"):
            ask()
    (tmp_path / "tree").mkdir()
    tree.renew()
    assert Folder(tmp_path / "tree").children("agents") == ["a"]
    tree.close()


def test_a_path_of_zookeeper_without_a_cluster_is_told(zookeeper: Ensemble) -> None:
    path = f"{zookeeper.addresses}/trees/nothing"
    place = Place(path, None, SESSION_S)
    with (
        pytest.raises(Unavailable, match="there is no cluster at"),
        place.opened(),
    ):
        pass
    with place.opened(new=True) as tree:
        tree.hold("agents/a", b"")
    with place.opened() as tree:
        assert tree.children("flows") == []
