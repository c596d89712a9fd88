"""A real ZooKeeper server for tests: one for each worker, started when it is first needed.

A test may kill it, and has to start it again. Each test uses paths of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from driftline.coordinator.zookeeper import close, connect
from driftline.deploy.cluster.records import AgentRecord, AgentRole
from driftline.deploy.cluster.zookeeper_tree import AGENTS, ZooKeeperTree
from driftline.deploy.zookeeper import Ensemble, command_line
from driftline.engine.errors import Unavailable

SESSION_S = 1.5

LONG_SESSION_S = 10.0
"""A session for tests in which none has to expire, also on a busy machine."""

WAIT_S = 30.0
"""How long a test waits for what has to happen; far more than it takes."""


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """One ZooKeeper server that serves."""
    needs_zookeeper()
    with Ensemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        ensemble.wait_until_ready()
        yield ensemble


def needs_zookeeper() -> None:
    """Skip a test where ZooKeeper cannot run."""
    try:
        command_line()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def empty_tree(zookeeper: Ensemble, tmp_path: Path) -> Iterator[ZooKeeperTree]:
    """The tree of a cluster that has nothing yet."""
    place = f"{zookeeper.addresses}/{tmp_path.name}"
    with closing(ZooKeeperTree(place, LONG_SESSION_S)) as tree:
        yield tree


def show(
    tree: ZooKeeperTree, name: str, *roles: AgentRole, slots: int = 4, host: str = "host"
) -> None:
    """Show an agent that does nothing."""
    tree.put_ephemeral(f"agents/{name}", AgentRecord(name, roles, host, slots).encode())


@contextmanager
def client_of(ensemble: Ensemble) -> Iterator[KazooClient]:
    """A client with a session of its own."""
    client = connect(ensemble.addresses, SESSION_S)
    try:
        yield client
    finally:
        close(client)


def make_cluster(zookeeper: str) -> None:
    """Make the path of a cluster, so that commands that come before its agents find one.

    A server that has just begun may lose a connection again.
    """
    give_up_at = monotonic() + WAIT_S
    while True:
        try:
            with closing(ZooKeeperTree(zookeeper, SESSION_S)) as tree:
                tree.children(AGENTS)
        except Unavailable:
            if monotonic() > give_up_at:
                raise
        else:
            return


def wait_connected(client: KazooClient) -> None:
    """Wait until a client is connected."""
    connected = threading.Event()

    def note(state: str) -> None:
        if state == KazooState.CONNECTED:
            connected.set()

    client.add_listener(note)
    if not client.connected:
        assert connected.wait(WAIT_S)
    client.remove_listener(note)


def expire(client: KazooClient) -> None:
    """Let the servers end the session of a client, as if they had not heard of it for long."""
    other = KazooClient(",".join(f"{h}:{p}" for h, p in client.hosts), client_id=client.client_id)
    other.start(WAIT_S)
    close(other)
