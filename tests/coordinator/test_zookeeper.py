"""Registry and leader queue in ZooKeeper."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch
from uuid import uuid4

import pytest
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from msgspec.structs import replace

from driftline.coordinator.leadership import FindSuccessor, Leadership
from driftline.coordinator.registry import ClusterState, encode_state
from driftline.coordinator.zookeeper import (
    DATA_BYTES_MAX,
    LeaderQueue,
    ZooKeeperRegistry,
    connect,
)
from driftline.engine.errors import DriftlineError, PayloadError, StateMismatch, Unavailable
from driftline.engine.events import FIELDS
from tests.zookeepers import SESSION_S, WAIT_S, Ensemble, client_of, expire, wait_connected

FIRST = ClusterState("me").next(incarnation=1)
SECOND = FIRST.next(incarnation=2)


@pytest.fixture
def client(zookeeper: Ensemble) -> Iterator[KazooClient]:
    with client_of(zookeeper) as client:
        yield client


@pytest.fixture
def path(client: KazooClient) -> str:
    """Return the path of a znode that does not exist yet; its parent does."""
    parent = f"/driftline/{uuid4().hex}"
    client.ensure_path(parent)
    return f"{parent}/registry"


class LostResponse:
    """Result of a request whose response is lost."""

    def get(self, timeout: float) -> None:
        raise exceptions.ConnectionLoss


# Requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_name", ["create_async", "set_async"])
@pytest.mark.parametrize("done", [False, True])
def test_write_with_a_lost_response_may_have_taken_effect(
    client: KazooClient, path: str, request_name: str, done: bool
) -> None:
    registry = ZooKeeperRegistry(client, path)
    state = FIRST
    if request_name == "set_async":
        registry.write(FIRST)
        state = SECOND
    real = getattr(client, request_name)

    def losing(*arguments: object, **options: object) -> LostResponse:
        if done:
            real(*arguments, **options).get(timeout=WAIT_S)
        return LostResponse()

    with (
        patch.object(client, request_name, losing),
        pytest.raises(Unavailable, match=r"127\.0\.0\.1:\d+: the connection was lost"),
    ):
        registry.write(state)
    assert (registry.read() == state) is done
    registry.write(state, again=True)
    assert registry.read() == state


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_znode_written_between_read_and_write_is_detected(
    zookeeper: Ensemble, client: KazooClient, path: str, first: bool, same: bool, again: bool
) -> None:
    """Another master may write it; or an earlier attempt with the same state arrives late."""
    registry = ZooKeeperRegistry(client, path)
    mine = FIRST if first else SECOND
    if not first:
        registry.write(FIRST)
    late = mine if same else replace(mine, incarnation=9)
    name = "create_async" if first else "set_async"
    real = getattr(client, name)

    def overtaken(*arguments: object, **options: object) -> object:
        with client_of(zookeeper) as other:
            write = other.create if first else other.set
            write(path, encode_state(late))
        return real(*arguments, **options)

    with patch.object(client, name, overtaken):
        if same and again:
            registry.write(mine, again=True)
        else:
            with pytest.raises(StateMismatch, match="another master"):
                registry.write(mine, again=again)
    assert registry.read() == late


def test_too_large_state_raises_a_clear_error(client: KazooClient, path: str) -> None:
    """A clear error is raised; ZooKeeper would only close the connection, again and again."""
    registry = ZooKeeperRegistry(client, path)
    rest = len(encode_state(FIRST.next(output="x" * 70_000))) - 70_000
    largest = FIRST.next(output="x" * (DATA_BYTES_MAX - rest))
    assert len(encode_state(largest)) == DATA_BYTES_MAX
    registry.write(FIRST)
    registry.write(largest)
    assert registry.read() == largest
    with pytest.raises(PayloadError, match="at most"):
        registry.write(largest.next(output=largest.output + "x"))
    assert registry.read() == largest


# Sessions -------------------------------------------------------------------------------------


def test_client_opens_a_new_session_after_expiry(client: KazooClient, path: str) -> None:
    registry = ZooKeeperRegistry(client, path)
    registry.write(FIRST)
    session = client.client_id
    errors: list[DriftlineError] = []
    over = threading.Event()

    def without_session(state: str) -> None:
        if state == KazooState.LOST:
            with pytest.raises(Unavailable) as raised:
                registry.write(SECOND)
            errors.append(raised.value)
            over.set()

    client.add_listener(without_session)
    expire(client)
    assert over.wait(WAIT_S)
    wait_connected(client)
    assert client.client_id != session
    assert "no server is connected now" in str(errors[0])
    registry.write(SECOND, again=True)
    assert registry.read() == SECOND


# Clients --------------------------------------------------------------------------------------


def test_error_names_unreachable_servers_and_the_reason(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unavailable, match=r"at 127\.0\.0\.1:1,localhost:2 .*Connection refused"):
        connect("127.0.0.1:1,localhost:2", SESSION_S, wait_s=0.5)
    with pytest.raises(Unavailable, match="no-such-host:1"):
        connect("no-such-host:1", SESSION_S, wait_s=0.5)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_log_reports_only_lost_servers_and_sessions(
    zookeeper: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    [server] = zookeeper.servers
    with client_of(zookeeper) as client:
        lost = threading.Event()

        def note(state: str) -> None:
            if state == KazooState.SUSPENDED:
                lost.set()

        client.add_listener(note)
        server.kill()
        assert lost.wait(WAIT_S)
        server.start()
        zookeeper.wait_until_ready()
        wait_connected(client)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert {record.name for record in warnings} == {"driftline"}
    events = [getattr(record, FIELDS)["event"] for record in warnings]
    assert [event for event in events if event != "zookeeper-expired"] == [
        "zookeeper-lost",
        "zookeeper-lost-over",
    ]
    assert str(zookeeper.addresses) in warnings[0].getMessage()


class QueuedMaster:
    """A master in the queue, with its own session."""

    def __init__(self, client: KazooClient, process: str, path: str) -> None:
        self.client = client
        self.process = process
        self.changed, self.expired = threading.Event(), threading.Event()
        self.succession = LeaderQueue(
            client,
            path,
            address=f"at {process}",
            changed=self.changed.set,
            expired=self.expired.set,
        )
        self.leadership = Leadership(process)

    def act(self) -> None:
        """Carry out all jobs that are due."""
        while jobs := self.leadership.due(0.0):
            for job in jobs:
                self.leadership.done(job, self.succession.execute_job(job), 0.0)

    def notice(self) -> None:
        """Wait until the queue changes, and act on it."""
        assert self.changed.wait(WAIT_S)
        self.changed.clear()
        self.leadership.on_queue_changed()
        self.act()


class MasterFactory:
    """Factory of masters of one queue; each test has its own queue."""

    def __init__(self, zookeeper: Ensemble, stack: ExitStack, path: str) -> None:
        self.zookeeper, self._stack, self.path = zookeeper, stack, path

    def __call__(self, process: str) -> QueuedMaster:
        client = self._stack.enter_context(client_of(self.zookeeper))
        return QueuedMaster(client, process, self.path)


@pytest.fixture
def masters(zookeeper: Ensemble, request: pytest.FixtureRequest) -> Iterator[MasterFactory]:
    with ExitStack() as stack:
        yield MasterFactory(zookeeper, stack, f"/queues/{request.node.name}")


def test_next_master_leads_when_the_first_exits(masters: MasterFactory) -> None:
    first, second, third = masters("a"), masters("b"), masters("c")
    for master in (first, second, third):
        master.act()
    assert [m.leadership.predecessor for m in (first, second, third)] == ["", "a", "b"]
    assert third.succession.leader() == ("a", "at a")
    third.changed.clear()
    first.client.stop()
    second.notice()
    assert second.leadership.first
    third.notice()  # it looks up the leader; its own position has not changed
    assert third.leadership.predecessor == "b"
    assert third.succession.leader() == ("b", "at b")


def test_forgotten_process_is_skipped_in_the_leader_queue(masters: MasterFactory) -> None:
    first, second, parent = masters("a"), masters("b"), masters("parent")
    first.act()
    second.act()
    parent.succession.forget("a")  # its session stays open
    second.notice()
    assert second.leadership.first
    assert parent.succession.leader() == ("b", "at b")


def test_leader_finds_its_successor(masters: MasterFactory) -> None:
    first, second, third = masters("a"), masters("b"), masters("c")
    first.act()
    assert first.succession.execute_job(FindSuccessor("a")) == ""
    second.act()
    third.act()
    assert first.succession.execute_job(FindSuccessor("a")) == "b"
    assert third.succession.execute_job(FindSuccessor("c")) == ""
    second.succession.forget("a")
    second.notice()
    with pytest.raises(StateMismatch, match="no longer in the queue of masters"):
        first.succession.execute_job(FindSuccessor("a"))


def test_expired_session_loses_its_place_and_reports_it(masters: MasterFactory) -> None:
    first, second = masters("a"), masters("b")
    first.act()
    second.act()
    expire(first.client)
    assert first.expired.wait(WAIT_S)
    first.leadership.on_session_expired()
    assert not first.leadership.first
    second.notice()
    assert second.leadership.first
