"""Registry, in a file and in ZooKeeper: the stored state, and the writes that it accepts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from msgspec.structs import replace

from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import (
    ClusterState,
    FileRegistry,
    Registry,
    RunOutcome,
    SnapshotRecord,
    check_identity,
    decode_state,
    encode_state,
)
from driftline.coordinator.zookeeper import ZooKeeperRegistry
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.code import Code
from driftline.engine.flow.outline import OperatorOutline, Outline
from driftline.engine.wire.codec import pack
from tests.deploy.local.run_copies import thread_states, wait_until
from tests.zookeepers import Ensemble, client_of, wait_connected

records = st.builds(
    SnapshotRecord,
    st.integers(1, 99),
    st.integers(0, 2**62),
    st.lists(st.integers(0, 2**62), max_size=3).map(tuple),
)
identities = st.builds(
    Identity,
    st.builds(
        Outline,
        st.text(max_size=9),
        st.integers(1, 99),
        st.lists(
            st.builds(
                OperatorOutline,
                st.text(max_size=9),
                st.sampled_from(["map", "scan"]),
                st.lists(st.text(max_size=9), max_size=2).map(tuple),
                st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=2).map(
                    tuple
                ),
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.text(max_size=9),
    st.text(max_size=9),
    st.integers(1, 99),
    st.lists(st.text(max_size=9), max_size=3).map(tuple),
    st.text(max_size=9),
)
codes = st.builds(
    Code,
    st.text(max_size=9),
    st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=3).map(tuple),
)
states = st.builds(
    ClusterState,
    st.text(max_size=9),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.lists(records, max_size=2).map(tuple),
    st.none()
    | st.builds(RunOutcome, st.text(max_size=9), st.text(max_size=9), st.text(max_size=9)),
    identity_details=st.none() | identities,
    code=codes,
    code_from=st.integers(0, 2**40),
    output=st.text(max_size=9),
    layout=st.lists(st.integers(0, 2**20), max_size=4).map(tuple),
)


@given(states)
def test_state_round_trips(state: ClusterState) -> None:
    assert decode_state(encode_state(state), "here") == state


@given(states, st.integers(0, 10_000), st.integers(0, 7))
def test_damaged_state_is_rejected(state: ClusterState, at: int, bit: int) -> None:
    data = bytearray(encode_state(state))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(StateMismatch, match="here is damaged"):
        decode_state(bytes(data), "here")
    with pytest.raises(StateMismatch):
        decode_state(bytes(data[: at % len(data)]), "here")


@pytest.mark.parametrize(
    "data",
    [
        pack((99, "me", 1, 1, ())),
        pack((7, "me")),
        b"\x91" * 200_000,
        b"",
    ],
)
def test_state_of_another_format_version_is_rejected(data: bytes) -> None:
    with pytest.raises(StateMismatch, match="another version of Driftline"):
        decode_state(crc32(data).to_bytes(4, "big") + data, "here")


def test_run_resumes_only_from_the_state_of_the_same_flow() -> None:
    assert check_identity(None, "me", "here") == ClusterState("me")
    state = ClusterState("me", 4, 2)
    assert check_identity(state, "me", "here") is state
    with pytest.raises(StateMismatch, match=r"(?s)here holds the state of.* another.*--output"):
        check_identity(state, "you", "here")


# The file -------------------------------------------------------------------------------------


class SimulatedCrash(Exception):
    """Simulated crash of the process."""


def crash_at_call(call: Callable[..., object], before: bool) -> Callable[..., object]:
    def crash(*arguments: object) -> None:
        if not before:
            call(*arguments)
        raise SimulatedCrash

    return crash


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("what", ["fdatasync", "fsync", "replace", "open"])
def test_crash_at_any_moment_leaves_the_old_or_the_new_state(
    tmp_path: Path, what: str, before: bool
) -> None:
    registry = FileRegistry(tmp_path / "registry")
    old = ClusterState("me").next(incarnation=1)
    registry.write(old)
    new = old.next(incarnation=2, snapshots=(SnapshotRecord(1, 5, (5,)),))
    with (
        patch.object(os, what, crash_at_call(getattr(os, what), before)),
        pytest.raises(SimulatedCrash),
    ):
        registry.write(new)
    found = registry.read()
    assert found in (old, new)
    assert found is not None
    after = found.next(incarnation=3)
    registry.write(after)
    assert registry.read() == after


def test_concurrent_processes_do_not_overwrite_each_others_versions(tmp_path: Path) -> None:
    """The registry contains every write that returned; no write was overwritten."""

    def write(name: str) -> list[int]:
        registry = FileRegistry(tmp_path / "registry")
        written: list[int] = []
        for _ in range(100):
            state = (registry.read() or ClusterState("me")).next(leader=name)
            with suppress(StateMismatch):
                registry.write(state)
                written.append(state.version)
        return written

    with ThreadPoolExecutor() as pool:
        versions = sorted(chain(*pool.map(write, ("one", "other", "third"))))
    found = FileRegistry(tmp_path / "registry").read()
    assert found is not None
    assert versions == list(range(1, found.version + 1))


class FileRegistryPlace:
    """Registry in a file."""

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


class ZooKeeperRegistryPlace:
    """Registry in a znode; each master has its own session."""

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


Place = FileRegistryPlace | ZooKeeperRegistryPlace
"""Location of a registry, with its raw content and ways to make it unreachable."""


@pytest.fixture
def in_zookeeper(zookeeper: Ensemble) -> Iterator[ZooKeeperRegistryPlace]:
    with client_of(zookeeper) as one, client_of(zookeeper) as other:
        yield ZooKeeperRegistryPlace(zookeeper, [one, other])


@pytest.fixture(params=["embedded", "zookeeper"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "embedded":
        return FileRegistryPlace(tmp_path)
    found: ZooKeeperRegistryPlace = request.getfixturevalue("in_zookeeper")
    return found


FIRST = ClusterState("me").next(incarnation=1)


def test_stale_write_of_a_second_master_is_rejected(place: Place) -> None:
    """A write that does not follow the latest version is rejected and changes nothing."""
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


@pytest.mark.parametrize("done", [False, True])
def test_failed_write_can_be_retried_whether_or_not_it_took_effect(
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


def test_damage_is_rejected_by_reads_and_writes(place: Place) -> None:
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


def test_registry_works_again_after_it_was_unreachable(place: Place) -> None:
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


def test_hung_server_is_unreachable(in_zookeeper: ZooKeeperRegistryPlace) -> None:
    in_zookeeper.master().write(FIRST)
    impatient = in_zookeeper.master()
    assert isinstance(impatient, ZooKeeperRegistry)
    impatient._answer_s = 0.1
    with in_zookeeper.hanging(), pytest.raises(Unavailable, match=r"no answer within 0\.1 s"):
        impatient.write(FIRST.next(incarnation=2))
    patient = in_zookeeper.master()
    patient.write(FIRST.next(incarnation=2), again=True)
    assert patient.read() == FIRST.next(incarnation=2)


def test_first_write_of_a_second_master_is_rejected(place: Place) -> None:
    mine, other = place.master(), place.master()
    other.write(FIRST)
    with pytest.raises(StateMismatch, match="another master"):
        mine.write(replace(FIRST, incarnation=2))
    with pytest.raises(StateMismatch, match="another master"):
        mine.write(replace(FIRST, incarnation=2), again=True)
    assert mine.read() == FIRST
