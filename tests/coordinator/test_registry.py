"""The record, its bytes, and the file of the embedded registry: whole after a crash at any moment.

What every registry promises is in `test_registries.py`.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import (
    ClusterState,
    FileRegistry,
    RunOutcome,
    SnapshotRecord,
    check_identity,
    decode_state,
    encode_state,
)
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.code import Code
from driftline.engine.flow.outline import OperatorOutline, Outline
from driftline.engine.wire.codec import pack

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
    about=st.none() | identities,
    code=codes,
    code_from=st.integers(0, 2**40),
    output=st.text(max_size=9),
    layout=st.lists(st.integers(0, 2**20), max_size=4).map(tuple),
)


@given(states)
def test_a_state_comes_back_as_it_was(state: ClusterState) -> None:
    assert decode_state(encode_state(state), "here") == state


def test_a_state_of_before_does_not_know_where_its_outputs_are() -> None:
    data = pack((4, "me", 1, 2, (), (None, "mine", 3, 0), None, ("3.11", (), 1)))
    state = decode_state(crc32(data).to_bytes(4, "big") + data, "here")
    assert (state.lineage, state.code_from, state.output) == ("mine", 1, "")


@given(states, st.integers(0, 10_000), st.integers(0, 7))
def test_a_damaged_state_is_refused(state: ClusterState, at: int, bit: int) -> None:
    data = bytearray(encode_state(state))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(StateMismatch, match="here is damaged"):
        decode_state(bytes(data), "here")
    with pytest.raises(StateMismatch):
        decode_state(bytes(data[: at % len(data)]), "here")


def test_a_state_of_before_has_the_layout_of_its_identity() -> None:
    about = Identity(Outline("flow", 128, ()), "digest", "exactly-once", 3, ())
    newest = "3.11", (), 1, "/out", 4, "master#1"
    data = pack((5, "me", 1, 2, (), (None, "mine", 3, 0), about.as_tuple(), newest))
    state = decode_state(crc32(data).to_bytes(4, "big") + data, "here")
    assert (state.layout, state.epoch, state.about) == ((0, 1, 2), 4, about)


@pytest.mark.parametrize(
    "data",
    [
        pack((99, "me", 1, 1, ())),
        pack((6, "me")),
        pack(()),
        pack(6),
        b"\x91" * 200_000,
        b"\xc1",
        b"",
    ],
)
def test_a_state_of_another_version_of_the_format_is_refused(data: bytes) -> None:
    with pytest.raises(StateMismatch, match="another version of Driftline"):
        decode_state(crc32(data).to_bytes(4, "big") + data, "here")


def test_what_is_no_identity_is_none() -> None:
    about = Identity(Outline("flow", 128, ()), "digest", "exactly-once", 3, ("a",))
    assert Identity.from_json(about.to_json()) == about
    for line in ("", "7", "[]", "[" * 200_000, "{}"):
        assert Identity.from_json(line) is None


def test_every_change_is_a_new_version() -> None:
    state = ClusterState("me")
    after = state.next(incarnation=4)
    assert (after.version, after.incarnation, after.identity) == (1, 4, "me")
    assert after.next().version == 2


def test_only_the_state_of_the_same_flow_is_gone_on_from() -> None:
    assert check_identity(None, "me", "here") == ClusterState("me")
    state = ClusterState("me", 4, 2)
    assert check_identity(state, "me", "here") is state
    with pytest.raises(StateMismatch, match=r"(?s)here holds the state of.* another.*--output"):
        check_identity(state, "you", "here")


# The file -------------------------------------------------------------------------------------


class Crash(Exception):
    """The process is gone."""


def crashing(call: Callable[..., object], before: bool) -> Callable[..., object]:
    def crash(*arguments: object) -> None:
        if not before:
            call(*arguments)
        raise Crash

    return crash


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("what", ["fdatasync", "fsync", "replace", "open"])
def test_after_a_crash_at_any_moment_there_is_the_old_state_or_the_new_one(
    tmp_path: Path, what: str, before: bool
) -> None:
    registry = FileRegistry(tmp_path / "registry")
    old = ClusterState("me").next(incarnation=1)
    registry.write(old)
    new = old.next(incarnation=2, snapshots=(SnapshotRecord(1, 5, (5,)),))
    with (
        patch.object(os, what, crashing(getattr(os, what), before)),
        pytest.raises(Crash),
    ):
        registry.write(new)
    found = registry.read()
    assert found in (old, new)
    assert found is not None
    after = found.next(incarnation=3)
    registry.write(after)
    assert registry.read() == after


def test_the_state_is_on_the_disk_before_it_replaces_the_old_one(tmp_path: Path) -> None:
    calls: list[str] = []

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def note(*arguments: object) -> object:
            calls.append(name)
            return call(*arguments)

        return note

    with ExitStack() as patches:
        for name in ("fdatasync", "fsync", "replace"):
            patches.enter_context(patch.object(os, name, noted(name, getattr(os, name))))
        FileRegistry(tmp_path / "registry").write(ClusterState("me").next())
    assert calls == ["fdatasync", "replace", "fsync"]


def test_a_place_that_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="registry"):
        FileRegistry(tmp_path / "file" / "registry").write(ClusterState("me").next())
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable, match="registry"):
        FileRegistry(tmp_path / "folder").read()


def test_of_processes_that_write_at_once_each_version_is_of_one(tmp_path: Path) -> None:
    """Every write that has returned is in the registry: no other one has taken its place."""

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
