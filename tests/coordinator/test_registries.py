"""What every registry promises: embedded, and in a real ZooKeeper."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from driftline.coordinator.registry import ClusterState, FileRegistry, Registry, SnapshotRecord
from driftline.coordinator.zookeeper import ZooKeeperRegistry
from driftline.deploy.zookeeper.ensemble import Ensemble
from driftline.engine.errors import StateMismatch, Unavailable
from tests.deploy.run.run_copies import thread_states, wait_until
from tests.zookeepers import client_of, wait_connected


class Place(Protocol):
    """Where a registry is."""

    def master(self) -> Registry:
        """The registry, as a master sees it that has just begun."""

    def content(self) -> bytes:
        """The stored bytes."""

    def put(self, data: bytes) -> None:
        """Replace the stored bytes, as damage does."""

    def unreachable(self) -> AbstractContextManager[None]:
        """Within this context the registry cannot be reached."""


class Embedded:
    """A file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "below" / "registry"

    def master(self) -> Registry:
        return FileRegistry(self._path)

    def content(self) -> bytes:
        return self._path.read_bytes()

    def put(self, data: bytes) -> None:
        self._path.write_bytes(data)

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        folder, away = self._path.parent, self._path.parent.with_name("away")
        folder.rename(away)
        folder.write_text("")
        yield
        folder.unlink()
        away.rename(folder)


class InZooKeeper:
    """A z-node; each master has a session of its own."""

    def __init__(self, ensemble: Ensemble, clients: list[KazooClient]) -> None:
        self._ensemble = ensemble
        self._path = f"/driftline/{uuid4().hex}/registry"
        self._clients, self._unused = clients, list(clients)

    def master(self) -> Registry:
        client = self._unused.pop() if self._unused else self._clients[0]
        return ZooKeeperRegistry(client, self._path)

    def content(self) -> bytes:
        return bytes(self._clients[0].get(self._path)[0])

    def put(self, data: bytes) -> None:
        self._clients[0].set(self._path, data)

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        [server] = self._ensemble.servers
        server.kill()
        try:
            yield
        finally:
            server.start()
            self._ensemble.wait_until_ready()
            for client in self._clients:
                wait_connected(client)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        [server] = self._ensemble.servers
        os.kill(server.pid, signal.SIGSTOP)
        wait_until(lambda: thread_states(server.pid) <= {"T"}, "all threads stand still")
        try:
            yield
        finally:
            os.kill(server.pid, signal.SIGCONT)
            for client in self._clients:
                wait_connected(client)


@pytest.fixture
def in_zookeeper(zookeeper: Ensemble) -> Iterator[InZooKeeper]:
    with client_of(zookeeper) as one, client_of(zookeeper) as other:
        yield InZooKeeper(zookeeper, [one, other])


@pytest.fixture(params=["embedded", "zookeeper"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "embedded":
        return Embedded(tmp_path)
    found: InZooKeeper = request.getfixturevalue("in_zookeeper")
    return found


FIRST = ClusterState("me").next(incarnation=1)


def test_nothing_is_read_where_nothing_was_written(place: Place) -> None:
    assert place.master().read() is None


def test_what_was_written_is_there_for_the_next_master(place: Place) -> None:
    state = ClusterState("me")
    for number in range(1, 4):
        state = state.next(incarnation=number, snapshots=(SnapshotRecord(number, 5, (5,)),))
        place.master().write(state)
        assert place.master().read() == state


def test_of_two_masters_only_one_can_go_on(place: Place) -> None:
    """A write that does not follow the last version is refused, and changes nothing."""
    mine, other = place.master(), place.master()
    mine.write(FIRST)
    assert mine.read() == other.read()
    other.write(FIRST.next(incarnation=3))
    with pytest.raises(StateMismatch, match="another master"):
        mine.write(FIRST.next(incarnation=2))
    assert mine.read() == FIRST.next(incarnation=3)
    for version in (0, 1, 2, 4, 9):
        with pytest.raises(StateMismatch):
            mine.write(ClusterState("me", version))
    assert mine.read() == FIRST.next(incarnation=3)


def test_of_two_masters_that_begin_only_one_can_go_on(place: Place) -> None:
    mine, other = place.master(), place.master()
    other.write(FIRST)
    with pytest.raises(StateMismatch, match="another master"):
        mine.write(replace(FIRST, incarnation=2))
    with pytest.raises(StateMismatch, match="another master"):
        mine.write(replace(FIRST, incarnation=2), again=True)
    assert mine.read() == FIRST


@pytest.mark.parametrize("done", [False, True])
def test_a_write_that_failed_is_repeated_whether_it_was_done_or_not(
    place: Place, done: bool
) -> None:
    master, second = place.master(), FIRST.next(incarnation=2)
    for state in (FIRST, second):
        if done:
            master.write(state)
        master.write(state, again=True)
        assert master.read() == state
        with pytest.raises(StateMismatch, match="another master"):
            master.write(replace(state, incarnation=9), again=True)
        assert master.read() == state


def test_the_first_write_has_to_be_the_first_version(place: Place) -> None:
    with pytest.raises(StateMismatch):
        place.master().write(ClusterState("me", 2))
    assert place.master().read() is None


def test_damage_is_refused_for_reading_and_for_writing(place: Place) -> None:
    master = place.master()
    master.write(FIRST)
    data = place.content()
    for damaged in (b"", data[:-1], data[:7] + b"?" + data[8:]):
        place.put(damaged)
        with pytest.raises(StateMismatch, match="damaged"):
            master.read()
        with pytest.raises(StateMismatch, match="damaged"):
            master.write(FIRST.next())
        assert place.content() == damaged


def test_a_registry_that_was_out_of_reach_goes_on_as_it_was(place: Place) -> None:
    master, second = place.master(), FIRST.next(incarnation=2)
    master.write(FIRST)
    with place.unreachable():
        with pytest.raises(Unavailable, match="registry"):
            master.read()
        with pytest.raises(Unavailable, match="registry"):
            master.write(second)
    assert master.read() == FIRST
    master.write(second, again=True)
    assert place.master().read() == second


def test_a_server_that_hangs_is_out_of_reach(in_zookeeper: InZooKeeper) -> None:
    in_zookeeper.master().write(FIRST)
    impatient = in_zookeeper.master()
    assert isinstance(impatient, ZooKeeperRegistry)
    impatient._answer_s = 0.1
    with in_zookeeper.hanging(), pytest.raises(Unavailable, match=r"no answer within 0\.1 s"):
        impatient.write(FIRST.next(incarnation=2))
    patient = in_zookeeper.master()
    patient.write(FIRST.next(incarnation=2), again=True)
    assert patient.read() == FIRST.next(incarnation=2)


def test_masters_that_write_at_the_same_time_write_one_after_the_other(
    in_zookeeper: InZooKeeper,
) -> None:
    """Each version is written by exactly one of them."""
    masters = [in_zookeeper.master(), in_zookeeper.master()]
    state = ClusterState("me")

    def write(registry: Registry, mine: ClusterState) -> ClusterState | None:
        try:
            registry.write(mine)
        except StateMismatch:
            return None
        return mine

    with ThreadPoolExecutor(2) as threads:
        for i in range(40):
            tries = [state.next(incarnation=2 * i), state.next(incarnation=2 * i + 1)]
            [written] = filter(None, threads.map(write, masters, tries))
            assert masters[0].read() == masters[1].read() == written
            state = written
