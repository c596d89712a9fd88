"""Real ZooKeeper server for tests: one for each worker, started on first use.

A test that kills it has to start it again. Each test uses its own paths.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from socket import create_server
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from driftline.coordinator.zookeeper import close, connect
from driftline.deploy.cluster.records import AgentRecord, AgentRole
from driftline.deploy.cluster.zookeeper_tree import AGENTS, ZooKeeperTree
from driftline.deploy.zookeeper import LOOPBACK, ZooKeeperServer, command_line
from driftline.engine.errors import Unavailable

SESSION_S = 1.5

LONG_SESSION_S = 10.0
"""Session timeout for tests in which no session may expire, even on a busy machine."""

WAIT_S = 30.0
"""How long a test waits for an event; far more than needed."""


class Ensemble:
    """Servers that elect a leader, or a single one. A context manager."""

    def __init__(self, directory: Path, size: int = 1, host: str = LOOPBACK) -> None:
        settings = ""
        with ExitStack() as stack:  # until all ports are chosen, so that they differ
            taken = [stack.enter_context(create_server((LOOPBACK, 0))) for _ in range(2 * size)]
            ports = [str(one.getsockname()[1]) for one in taken]
        for number in range(1, size + 1) if size > 1 else ():
            settings += f"server.{number}={LOOPBACK}:{ports.pop()}:{ports.pop()}\n"
        self.servers = []
        for number in range(1, size + 1):
            own = directory / f"server-{number}"
            (own / "data").mkdir(parents=True, exist_ok=True)
            (own / "data" / "myid").write_text(f"{number}\n")
            self.servers.append(ZooKeeperServer(own, host=host, settings=settings))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for server in self.servers:
            self._stack.enter_context(server)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def addresses(self) -> str:
        """Return the connection string for clients."""
        return ",".join(server.address for server in self.servers)

    def wait_until_ready(self) -> None:
        for server in self.servers:
            server.wait_until_ready()

    def leader(self) -> ZooKeeperServer:
        """Wait until a leader is elected, and return it."""
        give_up_at = monotonic() + WAIT_S
        while monotonic() < give_up_at:
            for server in self.servers:
                if server.is_running and server.mode() in ("leader", "standalone"):
                    return server
            sleep(0.05)
        raise AssertionError(f"no ZooKeeper server of {self.addresses} leads")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Provide a running ZooKeeper server."""
    needs_zookeeper()
    with Ensemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        ensemble.wait_until_ready()
        yield ensemble


def needs_zookeeper() -> None:
    """Skip the test if ZooKeeper cannot run."""
    try:
        command_line()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def empty_tree(zookeeper: Ensemble, tmp_path: Path) -> Iterator[ZooKeeperTree]:
    """Provide the tree of an empty cluster."""
    place = f"{zookeeper.addresses}/{tmp_path.name}"
    with closing(ZooKeeperTree(place, LONG_SESSION_S)) as tree:
        yield tree


def show(
    tree: ZooKeeperTree, name: str, *roles: AgentRole, slots: int = 4, host: str = "host"
) -> None:
    """Register an agent that does nothing."""
    tree.put_ephemeral(f"agents/{name}", AgentRecord(name, roles, host, slots).encode())


@contextmanager
def client_of(ensemble: Ensemble) -> Iterator[KazooClient]:
    """Provide a client with its own session."""
    client = connect(ensemble.addresses, SESSION_S)
    try:
        yield client
    finally:
        close(client)


def make_cluster(zookeeper: str) -> None:
    """Create the path of a cluster, for commands that run before its agents.

    A server that has just started may close a connection again.
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
    """Let the servers expire the session of a client."""
    other = KazooClient(",".join(f"{h}:{p}" for h, p in client.hosts), client_id=client.client_id)
    other.start(WAIT_S)
    close(other)
