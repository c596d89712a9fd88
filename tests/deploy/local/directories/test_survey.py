"""Each rule by which directories of a run fit together, and reports on real directories."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from driftline.connectors.logs.inputlog import InputLog, LoggedRecord, WriteGroup
from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.local.directories.survey import DirectoryReport, Problem, problems
from driftline.deploy.runtime.supervision import child
from driftline.engine.errors import Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.policy import POLICIES
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.engine.storage.ownership import DirectoryOwner

RUN = ClusterState(
    "me", 9, 3, (SnapshotRecord(7, 40, (40,), 3, (17, 5)),), lineage="mine", last_session=2
)


def report_on(role: str, **changes: object) -> DirectoryReport:
    path = "/r/out" if role.startswith("output") else f"/r/state/{role}"
    report = DirectoryReport(role, path, DirectoryOwner("mine", role, 2), reserved=99, t_last=7)
    return replace(report, **changes)


ALL = [report_on(role) for role in ("node-0", "node-1", "input-0", "output-0", "output-1")]


def problems_of(
    policy: str, *changed: DirectoryReport, state: ClusterState | None = RUN
) -> list[Problem]:
    by_role = {report.role: report for report in [*ALL, *changed]}
    return problems(POLICIES[policy], "/r/state/registry", state, list(by_role.values()))


@pytest.mark.parametrize("policy", POLICIES)
def test_matching_directories_have_no_problems(policy: str) -> None:
    assert problems_of(policy) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("session", [None, 1])
def test_interrupted_first_start_has_no_problems(policy: str, session: int | None) -> None:
    """Only some directories were made, or none, and no incarnation was decided."""
    begun = ClusterState("me", 1, lineage="mine")
    owner = None if session is None else DirectoryOwner("mine", "node-0", session)
    fresh = [replace(report, owner=None, reserved=0, t_last=-1) for report in ALL]
    assert problems_of(policy, *fresh, replace(fresh[0], owner=owner), state=begun) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("role", [report.role for report in ALL])
def test_foreign_moved_or_newer_directory_is_rejected(policy: str, role: str) -> None:
    for owner, expected_text in (
        (
            DirectoryOwner("other", role, 2),
            "of run other, but registry /r/state/registry is run mine",
        ),
        (DirectoryOwner("mine", "node-9", 2), "it was moved or copied there"),
        (DirectoryOwner("mine", role, 4), "registry /r/state/registry is an old copy"),
    ):
        [problem] = problems_of(policy, report_on(role, owner=owner))
        assert problem.fatal
        assert expected_text in problem.text
        assert report_on(role).path in problem.text


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("role", [report.role for report in ALL])
def test_lost_or_old_directory_is_rejected_unless_recomputed(policy: str, role: str) -> None:
    again = role.startswith("node") and policy not in ("two-phase", "strong-productions")
    for owner in (None, DirectoryOwner("mine", role, 1)):
        [problem] = problems_of(policy, report_on(role, owner=owner))
        assert problem.fatal is not again
        assert report_on(role).path in problem.text
        [problem] = problems_of(policy, report_on(role, owner=owner), state=replace(RUN, base=1))
        assert problem.fatal, "the run began from a savepoint: earlier records are not in the input"
    trimmed = report_on("input-0", trimmed=30)
    found = problems_of(policy, report_on(role, owner=None, trimmed=30), trimmed)
    if policy == "none" and role.startswith("node"):
        assert "with none every call begins with an empty state" in found[0].text
        assert not found[0].fatal
    else:
        assert all(problem.fatal for problem in found)


@pytest.mark.parametrize("policy", POLICIES)
def test_directories_without_their_registry_are_rejected(policy: str) -> None:
    [problem] = problems_of(policy, state=None)
    assert problem.fatal
    assert "/r/state/registry is not there" in problem.text
    assert problems_of(policy, *(replace(report, owner=None) for report in ALL), state=None) == []


@pytest.mark.parametrize(
    ("policy", "reserved", "expected_text"),
    [("two-phase", 39, "before record 40"), ("exactly-once", 7, "before record 40")],
)
def test_log_that_ends_before_processed_records_is_rejected(
    policy: str, reserved: int, expected_text: str
) -> None:
    [problem] = problems_of(policy, report_on("input-0", reserved=reserved))
    assert problem.fatal
    assert (
        f"it ends before record {reserved}, but all records {expected_text} are used"
        in problem.text
    )
    without = replace(RUN, snapshots=())
    found = problems_of(policy, report_on("input-0", reserved=reserved), state=without)
    assert len(found) == (policy == "exactly-once"), "outputs up to 7 are delivered"


def test_registry_older_than_a_log_is_reported() -> None:
    assert problems_of("exactly-once", report_on("input-0", trimmed=40)) == []
    [problem] = problems_of("exactly-once", report_on("input-0", trimmed=41))
    assert problem.fatal
    assert "registry /r/state/registry is an old copy: its newest snapshot needs" in problem.text


def test_damage_without_usable_earlier_snapshot_is_rejected() -> None:
    for policy in POLICIES:
        again = policy not in ("two-phase", "strong-productions")
        [problem] = problems_of(policy, report_on("node-0", damage="/r/state/node-0 is damaged"))
        assert problem.fatal is not again
        [problem] = problems_of(
            policy, report_on("node-0", damage="/r/state/node-0 kills", crashes_reader=True)
        )
        assert problem.fatal


def test_damaged_store_is_rejected_or_falls_back_to_earlier_snapshot() -> None:
    trimmed = report_on("input-0", trimmed=5)
    [problem] = problems_of("exactly-once", report_on("node-0", damage="d"), trimmed)
    assert not problem.fatal
    assert "if that cannot be loaded either, the start is rejected. Restore it" in problem.text
    shut = report_on("node-0", damage="/r/state/node-0 is damaged", unopenable=True)
    [problem] = problems_of("exactly-once", shut, trimmed)
    assert problem.fatal
    assert "computed again" not in problem.text
    [problem] = problems_of("exactly-once", shut)
    assert problem.fatal
    assert problem.text.endswith(
        "remove /r/state/node-0 alone: it is computed again from the input"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_used_file_may_be_missing_or_old_but_not_foreign(policy: str) -> None:
    for session in (1, 2):
        old = report_on("used-0", owner=DirectoryOwner("mine", "used-0", session))
        assert problems_of(policy, old) == []
    [other] = problems_of(policy, report_on("used-0", owner=DirectoryOwner("other", "used-0", 1)))
    name = "used-0 (the used records of input 0)"
    assert f"{name} is used-0 of run other" in other.text
    [damaged] = problems_of(policy, report_on("used-0", damage="/r/state/input-0.used is damaged"))
    assert damaged.fatal


# Reading real directories ---------------------------------------------------------------


def store_with_parts(path: Path) -> None:
    store = LmdbStore(path / "node-0", "me", DirectoryOwner("mine", "node-0", 1))
    parts = PartStore(store, Flow("nothing"))
    chance = Random(1)
    for number in range(1, 30):
        segments = {g: chance.randbytes(chance.choice((20, 3000, 9000))) for g in range(3)}
        parts.execute_job(StoreSnapshot(number, segments, b"meta"))
    store.close()


def log_with_entries(path: Path) -> None:
    log = InputLog(path / "input-0", "me", DirectoryOwner("mine", "input-0", 1))
    for first in range(1, 300, 10):
        entries = tuple(LoggedRecord(n, "p", n, b"\xa1x" * n) for n in range(first, first + 10))
        log.write(WriteGroup(entries, first + 100, 0))
    log.close()


@pytest.mark.parametrize(
    ("make", "file", "places"),
    [
        (store_with_parts, "node-0/data.mdb", (8192, 0)),  # beyond the two meta pages of LMDB
        # before the last group of the log
        (log_with_entries, "input-0/segment-00000000", (0, -4000)),
    ],
)
def test_bit_flip_is_detected_or_harmless(
    make: Callable[[Path], None], file: str, places: tuple[int, int], tmp_path: Path
) -> None:
    make(tmp_path)
    [whole] = inspect_directories(tmp_path, None)
    assert not whole.damage
    path = tmp_path / file
    data = path.read_bytes()
    chance = Random(2)
    noticed = 0
    for at in (chance.randrange(places[0], len(data) + places[1]) for _ in range(5)):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        [report] = inspect_directories(tmp_path, None)
        assert report.damage or report == whole, f"byte {at}"
        assert not report.damage or str(path.parent) in report.damage
        noticed += bool(report.damage)
    assert noticed


@pytest.mark.parametrize("pages", [0, 3])
def test_truncated_store_is_reported(pages: int, tmp_path: Path) -> None:
    store_with_parts(tmp_path)
    file = tmp_path / "node-0" / "data.mdb"
    file.write_bytes(file.read_bytes()[: pages * 4096])
    reports = inspect_directories(tmp_path, None)
    if pages:
        assert str(tmp_path / "node-0") in reports[0].damage
    else:
        assert reports == [], "as if the store had never existed: the rules decide about that"


KILLED = """
import os, signal, sys
sys.stdout.write('{"role": "node-7", "torn')
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_reader_does_not_count_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state" / "node-0").mkdir(parents=True)
    (tmp_path / "state" / "node-0" / "data.mdb").write_bytes(b"")
    monkeypatch.setattr(child, "command", lambda *_: [sys.executable, "-c", KILLED])
    with pytest.raises(Unavailable, match="SIGKILL ended the process that reads it"):
        inspect_directories(tmp_path / "state", None)
