"""The rules by which directories fit together, one by one; and what is read of real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.deploy.run.looking import look
from driftline.deploy.run.survey import Found, Problem, problems
from driftline.engine.flow.flow import Flow
from driftline.engine.lmdbs import open_environment
from driftline.engine.policy import POLICIES
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.engine.sources.logs.inputlog import Entry, InputLog, WriteGroup
from driftline.engine.wire.marks import Mark

RUN = ClusterState(
    "me", 9, 3, (SnapshotRecord(7, 40, (40,), 3, (17, 5)),), lineage="mine", opened=2
)


def found(part: str, **changes: object) -> Found:
    path = "/r/out" if part.startswith("output") else f"/r/state/{part}"
    here = Found(part, path, Mark("mine", part, 2), newest=20, reserved=99, t_last=7)
    return replace(here, **changes)  # type: ignore[arg-type]


ALL = [found(part) for part in ("node-0", "node-1", "input-0", "output-0", "output-1")]


def told(policy: str, *changed: Found, state: ClusterState | None = RUN) -> list[Problem]:
    there = {here.part: here for here in ALL}
    there.update({here.part: here for here in changed})
    return problems(POLICIES[policy], "/r/state/registry", state, list(there.values()))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_belongs_together_fits(policy: str) -> None:
    assert told(policy) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("session", [None, 1])
def test_a_first_start_that_was_interrupted_anywhere_goes_on(
    policy: str, session: int | None
) -> None:
    """Nothing of it, or some of it, was made; no incarnation was ever decided."""
    begun = ClusterState("me", 1, lineage="mine")
    mark = None if session is None else Mark("mine", "node-0", session)
    fresh = [replace(h, mark=None, newest=0, reserved=0, t_last=-1) for h in ALL]
    assert told(policy, *fresh, replace(fresh[0], mark=mark), state=begun) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("part", [here.part for here in ALL])
def test_what_is_anothers_or_moved_or_newer_is_refused(policy: str, part: str) -> None:
    for mark, said in (
        (Mark("other", part, 2), "of run other, but registry /r/state/registry is run mine"),
        (Mark("mine", "node-9", 2), "it was moved or copied there"),
        (Mark("mine", part, 4), "registry /r/state/registry is an old copy"),
    ):
        [problem] = told(policy, found(part, mark=mark))
        assert problem.fatal
        assert said in problem.text
        assert found(part).path in problem.text


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("part", [here.part for here in ALL])
def test_what_is_lost_or_old_is_refused_unless_it_is_computed_again(policy: str, part: str) -> None:
    again = part.startswith("node") and policy not in ("two-phase", "strong-productions")
    for mark in (None, Mark("mine", part, 1)):
        [problem] = told(policy, found(part, mark=mark))
        assert problem.fatal is not again
        assert found(part).path in problem.text
        [problem] = told(policy, found(part, mark=mark), state=replace(RUN, base=1))
        assert problem.fatal, "it began from a savepoint: the beginning is not in the input"
    trimmed = found("input-0", trimmed=30)
    assert all(p.fatal for p in told(policy, found(part, mark=None, trimmed=30), trimmed))


@pytest.mark.parametrize("policy", POLICIES)
def test_without_the_registry_whatever_is_a_runs_is_refused(policy: str) -> None:
    [problem] = told(policy, state=None)
    assert problem.fatal
    assert "/r/state/registry is not there" in problem.text
    assert told(policy, *(replace(here, mark=None) for here in ALL), state=None) == []


@pytest.mark.parametrize(
    ("policy", "changed", "said"),
    [
        ("two-phase", {"part": "node-0", "newest": 6}, "its newest part is 6"),
        ("strong-productions", {"part": "node-0", "newest": 16}, "its newest part is 16"),
        ("strong-productions", {"part": "node-1", "newest": 4}, "its newest part is 4"),
        ("two-phase", {"part": "output-1", "t_last": 8}, "has the outputs of epoch 8"),
        ("two-phase", {"part": "input-0", "reserved": 39}, "no time from 39 on"),
        ("exactly-once", {"part": "input-0", "reserved": 7}, "no time from 7 on"),
    ],
)
def test_copies_from_within_a_session_are_told_by_their_numbers(
    policy: str, changed: dict[str, object], said: str
) -> None:
    part = str(changed.pop("part"))
    [problem] = told(policy, found(part, **changed))
    assert problem.fatal
    assert said in problem.text
    assert found(part).path in problem.text


def test_damage_is_refused_where_the_snapshot_before_does_not_help() -> None:
    for policy in POLICIES:
        again = policy not in ("two-phase", "strong-productions")
        [problem] = told(policy, found("node-0", damage="/r/state/node-0 is damaged"))
        assert problem.fatal is not again
        [problem] = told(policy, found("node-0", damage="/r/state/node-0 kills", deadly=True))
        assert problem.fatal


# What is read --------------------------------------------------------------------------------


def store_with_parts(path: Path) -> None:
    store = LmdbStore(path / "node-0", "me", Mark("mine", "node-0", 1))
    parts = PartStore(store, Flow("nothing"))
    chance = Random(1)
    for number in range(1, 30):
        segments = {g: chance.randbytes(chance.choice((20, 3000, 9000))) for g in range(3)}
        parts.carry_out(StoreSnapshot(number, segments, b"meta"))
    store.close()


def log_with_entries(path: Path) -> None:
    log = InputLog(path / "input-0", "me", Mark("mine", "input-0", 1))
    for first in range(1, 300, 10):
        entries = tuple(Entry(n, "p", n, b"\xa1x" * n) for n in range(first, first + 10))
        log.write(WriteGroup(entries, first + 100, 0))
    log.close()


@pytest.mark.parametrize(
    ("make", "part"), [(store_with_parts, "node-0"), (log_with_entries, "input-0")]
)
def test_a_changed_bit_anywhere_is_noticed_or_changes_nothing(
    make: object, part: str, tmp_path: Path
) -> None:
    assert callable(make)
    make(tmp_path)
    [whole] = look(tmp_path, None)
    assert not whole.damage
    file = tmp_path / part / "data.mdb"
    data = file.read_bytes()
    chance = Random(2)
    noticed = 0
    places = [page + 16 + chance.randrange(136) for page in (0, 4096) * 6]  # the roots
    for at in [*places, *(chance.randrange(8192, len(data)) for _ in range(18))]:
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        [here] = look(tmp_path, None)
        assert here.damage or here == whole, f"byte {at}"
        assert not here.damage or str(tmp_path / part) in here.damage
        noticed += bool(here.damage)
    assert noticed > 5


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 20])
def test_a_store_that_was_cut_is_told_of(pages: int, tmp_path: Path) -> None:
    store_with_parts(tmp_path)
    file = tmp_path / "node-0" / "data.mdb"
    file.write_bytes(file.read_bytes()[: pages * 4096])
    found = look(tmp_path, None)
    if pages:
        assert str(tmp_path / "node-0") in found[0].damage
    else:
        assert found == [], "as if it had never been there: that is for the rules"


def test_a_store_or_log_that_was_made_and_not_written_to_is_new(tmp_path: Path) -> None:
    """Whoever makes one may be killed before its first transaction."""
    for part in ("node-0", "input-0"):
        open_environment(tmp_path / part, 1 << 20, max_dbs=3).close()
    assert [(here.mark, here.damage) for here in look(tmp_path, None)] == [(None, "")] * 2


def test_every_transaction_of_a_store_and_a_log_says_its_number(tmp_path: Path) -> None:
    store_with_parts(tmp_path)
    log_with_entries(tmp_path)
    for _ in range(2):
        LmdbStore(tmp_path / "node-0", "me", Mark("mine", "node-0", 1)).close()
        InputLog(tmp_path / "input-0", "me", Mark("mine", "input-0", 1)).close()
        assert [here.damage for here in look(tmp_path, None)] == ["", ""]
