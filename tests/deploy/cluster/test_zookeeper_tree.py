"""ZooKeeper tree: versions, ephemeral data and its holder, removals, and change callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from driftline.deploy.cluster.zookeeper_tree import NEW, WriteConflict, ZooKeeperNode, ZooKeeperTree
from driftline.deploy.commands.cluster_options import ClusterAddress
from driftline.engine.errors import InUse, Unavailable
from tests.zookeepers import SESSION_S, WAIT_S, Ensemble

Open = Callable[[], ZooKeeperTree]


@pytest.fixture
def opened(zookeeper: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return a function that opens the same tree with a new session each time."""
    monkeypatch.setattr("driftline.deploy.cluster.zookeeper_tree.SESSION_EXPIRY_S", 0.2)
    with ExitStack() as stack:

        def open_one() -> ZooKeeperTree:
            tree = ZooKeeperTree(f"{zookeeper.addresses}/{tmp_path.name}", SESSION_S)
            stack.callback(tree.close)
            return tree

        yield open_one


def test_concurrent_write_with_stale_version_is_rejected(opened: Open) -> None:
    one, other = opened(), opened()
    assert one.read("flows/a/submission") is None
    assert one.children("flows") == []
    one.write("flows/a/submission", b"first", NEW)
    assert other.read("flows/a/submission") == ZooKeeperNode(b"first", 0)
    other.write("flows/a/submission", b"second", 0)
    for path, version in (("a", 0), ("a", NEW), ("b", 3)):
        with pytest.raises(WriteConflict):
            one.write(f"flows/{path}/submission", b"third", version)
    assert one.read("flows/a/submission") == ZooKeeperNode(b"second", 1)
    one.write("flows/b/submission", b"", NEW)
    assert other.children("flows") == ["a", "b"]
    other.remove("flows/a")
    other.remove("flows/a")
    assert one.children("flows") == ["b"]
    assert one.read("flows/a/submission") is None


def test_entries_are_written_atomically(opened: Open) -> None:
    tree = opened()
    tree.write_together(
        {"flows/a/x": ZooKeeperNode(b"1", NEW), "flows/b/y": ZooKeeperNode(b"2", NEW)}
    )
    with pytest.raises(WriteConflict):
        tree.write_together(
            {"flows/a/x": ZooKeeperNode(b"3", 0), "flows/b/y": ZooKeeperNode(b"4", NEW)}
        )
    assert tree.read("flows/a/x") == ZooKeeperNode(b"1", 0)
    assert tree.read("flows/b/y") == ZooKeeperNode(b"2", 0)


def test_ephemeral_data_lives_as_long_as_its_session(opened: Open) -> None:
    one, other = opened(), opened()
    one.put_ephemeral("agents/a", b"1")
    one.put_ephemeral("agents/a", b"2")
    assert other.children("agents") == ["a"]
    other.remove_ephemeral("agents/a")
    with pytest.raises(InUse, match="belongs to another process"):
        other.put_ephemeral("agents/a", b"3")
    other.remove_ephemeral("agents/a")  # as an exiting agent does
    found = one.read("agents/a")
    assert found is not None
    assert found.data == b"2"
    one.remove_ephemeral("agents/a")
    one.remove_ephemeral("agents/a")
    assert other.children("agents") == []
    one.put_ephemeral("agents/b", b"")
    one.close()
    assert other.children("agents") == []
    other.put_ephemeral("agents/b", b"again")
    assert other.children("agents") == ["b"]


def test_holder_restores_removed_or_overwritten_data(opened: Open) -> None:
    one, other = opened(), opened()
    woken = threading.Event()
    one.on_change(woken.set)
    one.put_ephemeral("agents/a", b"1")
    one.put_ephemeral("agents/b", b"2")
    one.restore_ephemerals()
    woken.clear()
    other.remove("agents/a")
    found = other.read("agents/b")
    assert found is not None
    other.write("agents/b", b"garbage", found.version)
    assert woken.wait(WAIT_S)
    one.restore_ephemerals()
    assert other.children("agents") == ["a", "b"]
    assert [entry.data for name in "ab" if (entry := other.read(f"agents/{name}"))] == [b"1", b"2"]
    one.close()
    assert other.children("agents") == [], "the data ends with its holder, as before"


def test_change_callback_fires_on_every_change(opened: Open) -> None:
    one, other = opened(), opened()
    changed = threading.Event()
    one.on_change(changed.set)
    assert one.read("flows/a/submission") is None
    assert one.children("agents") == []
    changed.clear()
    other.write("flows/a/submission", b"", NEW)
    assert changed.wait(WAIT_S)
    changed.clear()
    other.put_ephemeral("agents/x", b"")
    assert changed.wait(WAIT_S)
    assert one.registry("a").read() is None
    assert other.masters("a", lambda: None).leader() == ("", "")


@pytest.mark.parametrize(("name", "version"), [("submission", 0), ("wheels/b", NEW)])
def test_removal_is_rejected_after_a_concurrent_write(
    opened: Open, name: str, version: int
) -> None:
    one, other = opened(), opened()
    for each in ("submission", "wheels/a"):
        one.write(f"flows/a/{each}", b"", NEW)
    one.write("flows/ab/submission", b"", NEW)
    with pytest.raises(WriteConflict):
        one.remove("flows/a", lambda: other.write(f"flows/a/{name}", b"new", version))
    left = [path for path in ("submission", "wheels/a", "wheels/b") if one.read(f"flows/a/{path}")]
    assert left == ["submission", "wheels/a", *["wheels/b"] * (version == NEW)]
    one.remove("flows/a")
    assert one.children("flows") == ["ab"]


def test_opening_a_path_without_a_cluster_raises(zookeeper: Ensemble, tmp_path: Path) -> None:
    place = ClusterAddress(f"{zookeeper.addresses}/{tmp_path.name}", SESSION_S)
    with pytest.raises(Unavailable, match="there is no cluster at"), place.open_tree():
        pass
    with place.open_tree(new=True) as tree:
        tree.put_ephemeral("agents/a", b"")
    with place.open_tree() as tree:
        assert tree.children("flows") == []
