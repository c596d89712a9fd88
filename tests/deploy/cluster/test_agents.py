"""Agents whose ZooKeeper session expires, or that cannot reach ZooKeeper."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from driftline.deploy.cluster.agent import Agent, AgentConfig
from driftline.deploy.cluster.flow_runner import AgentSettings, FlowRunner
from driftline.deploy.cluster.records import AgentRole, Submission
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.runtime.signals import Signals
from driftline.engine.errors import InUse, Unavailable
from tests.zookeepers import SESSION_S, WAIT_S, Ensemble, expire


class AgentThread(threading.Thread):
    """Agent that runs in a thread."""

    stop_signal: signal.Signals | None = None

    def __init__(self, ensemble: Ensemble, folder: Path) -> None:
        super().__init__(daemon=True)
        self.tree = ZooKeeperTree(f"{ensemble.addresses}/{folder.name}", SESSION_S)
        config = AgentConfig("n", (AgentRole.NODE,), folder, 4)
        self.agent = Agent(config, self.tree, folder)
        self.error: Exception | None = None
        self.shown = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self.agent.run(cast(Signals, self))
        except InUse as error:
            self.error = error

    def end(self) -> None:
        self.stop_signal = signal.SIGTERM
        self.join()
        self.tree.close()


@pytest.fixture
def running(zookeeper: Ensemble, tmp_path: Path) -> Iterator[AgentThread]:
    running = AgentThread(zookeeper, tmp_path)
    yield running
    running.end()


def wait_until_registered(tree: ZooKeeperTree, *, there: bool = True) -> None:
    changed = threading.Event()
    tree.on_change(changed.set)
    while (tree.children("agents") == ["n"]) != there:
        assert changed.wait(WAIT_S)
        changed.clear()


def test_agent_registers_again_after_session_expiry(running: AgentThread) -> None:
    with closing(ZooKeeperTree(running.tree.zookeeper, SESSION_S)) as other:
        wait_until_registered(other)
        before = other._client.get("/agents/n")[1].owner_session_id
        expire(running.tree._client)
        deadline = threading.Event()
        for _ in range(round(WAIT_S * 20)):
            if other.children("agents") == ["n"]:
                found = other.read("agents/n")
                if found and other._client.get("/agents/n")[1].owner_session_id != before:
                    break
            deadline.wait(0.05)
        else:
            pytest.fail("it is not there")
        assert running.is_alive()


def test_agent_exits_if_another_agent_took_its_name(
    running: AgentThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two agents with the same name would run the same nodes."""
    monkeypatch.setattr("driftline.deploy.cluster.zookeeper_tree.SESSION_EXPIRY_S", 0.2)
    with closing(ZooKeeperTree(running.tree.zookeeper, SESSION_S)) as other:
        wait_until_registered(other)
        renew = running.tree.restore_ephemerals

        def late() -> None:
            if not other.children("agents"):
                other.put_ephemeral("agents/n", b"another agent")
            renew()

        running.tree.restore_ephemerals = late  # type: ignore[method-assign]
        expire(running.tree._client)
        running.join(WAIT_S)
        assert running.error is not None
        assert "has an agent 'n' already" in str(running.error)


def unreachable(*arguments: object) -> None:
    raise Unavailable("it does not answer")


def test_unreachable_zookeeper_is_reported_and_does_not_fail_the_flow(
    empty_tree: ZooKeeperTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = Submission(
        "sums", "a.py", "/out", 1, ("a",), ("f",), "exactly-once", "speculative", 1.0,
        dead_letters=False, identity="", code="", lineage="", session=1, run="r", groups=128,
    )  # fmt: skip
    host = AgentSettings("a", tmp_path, tmp_path)
    monkeypatch.setattr(empty_tree, "masters", unreachable)
    hosting = FlowRunner(submission, ["node-0"], (0,), host, empty_tree, 1, lambda: None)
    hosting.start()
    hosting.join(30)
    assert (hosting.transient_error, hosting.fatal_error, hosting.is_done) == (
        "it does not answer",
        "",
        False,
    )
