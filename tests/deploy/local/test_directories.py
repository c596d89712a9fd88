"""Every directory of a run, lost, old, of another, cut or damaged: all is right, or refused.

Real runs, killed on their way; then something is done to a directory, and the run goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.local.command import call
from tests.deploy.local.run_copies import (
    FLOW,
    RECORDS,
    Place,
    end,
    interrupted,
    kill,
    received,
    text,
    wait_until,
)

POLICIES = [
    "exactly-once",
    pytest.param("two-phase", marks=pytest.mark.soak),
    pytest.param("strong-productions", marks=pytest.mark.soak),
    pytest.param("at-least-once", marks=pytest.mark.soak),
]


def deleted(path: Path, old: Path, other: Path) -> None:
    _remove(path)


def restored(path: Path, old: Path, other: Path) -> None:
    """From an earlier copy."""
    _remove(path)
    shutil.copytree(old, path) if old.is_dir() else shutil.copy(old, path)


def swapped(path: Path, old: Path, other: Path) -> None:
    path.rename(path.with_name("aside"))
    other.rename(path)
    path.with_name("aside").rename(other)


def truncated(path: Path, old: Path, other: Path) -> None:
    """In the middle; at a page of LMDB."""
    file = _largest(path)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 // 4096 * 4096] if len(data) > 9000 else data[:-7])


def flipped(path: Path, old: Path, other: Path) -> None:
    """One bit of what is in use."""
    file = _largest(path)
    data = bytearray(file.read_bytes())
    data[len(data) * 2 // 5] ^= 4
    file.write_bytes(data)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _largest(path: Path) -> Path:
    """What holds the most: not a lock file."""
    if path.is_file():
        return path
    files = [f for f in path.iterdir() if f.suffix in (".mdb", ".jsonl") or "segment" in f.name]
    return max(files, key=lambda file: file.stat().st_size)


Deed = Callable[[Path, Path, Path], None]

CASES: list[tuple[str, Deed]] = [
    *(("state/registry", deed) for deed in (deleted, restored, truncated, flipped)),
    *(("state/node-0", deed) for deed in (deleted, restored, swapped, truncated, flipped)),
    *(("out", deed) for deed in (deleted, restored, truncated, flipped)),
    *(("state", deed) for deed in (deleted, restored)),
]

LOG_CASES: list[tuple[str, Deed]] = [
    *(("state/input-0", deed) for deed in (deleted, restored, truncated, flipped)),
    ("state", deleted),
    ("out", restored),
]


OF_EPOCHS = [("state/registry", restored), ("state/node-0", deleted), ("out", restored)]
"""Cases in which two-phase differs."""


def case(what: tuple[str, Deed]) -> str:
    return f"{what[0].rpartition('/')[2]} {what[1].__name__}"


@pytest.fixture(scope="module", params=["exactly-once"])
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Place, Place]:
    return interrupted(tmp_path_factory.mktemp("run"), str(request.param))


@pytest.fixture(
    scope="module",
    params=["exactly-once", pytest.param("two-phase", marks=pytest.mark.soak)],
)
def logged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Place, Place]:
    return received(tmp_path_factory.mktemp("run"), str(request.param))


def check(copies: tuple[Place, Place], tmp_path: Path, directory: str, deed: Deed) -> None:
    old, now = copies
    place = now.copy(tmp_path.name)
    other = place.root / "state" / "node-1"
    path = place.root / directory
    deed(path, old.root / directory, other)
    status, said = end(place)
    assert "Traceback" not in said, said
    if status == 0:
        assert place.problem() == "", said
    else:
        # A copy from within the session: what is named may be the directory that it does not fit.
        where = place.root if deed is restored else path
        assert str(where) in said, f"it does not say where: {said}"
        assert " error   run " in said


@pytest.mark.parametrize("what", CASES, ids=case)
@pytest.mark.parametrize("copies", POLICIES, indirect=True)
def test_a_directory_that_does_not_fit_is_refused_or_changes_nothing(
    copies: tuple[Place, Place], tmp_path: Path, what: tuple[str, Deed]
) -> None:
    check(copies, tmp_path, *what)


@pytest.mark.parametrize("what", OF_EPOCHS, ids=case)
@pytest.mark.parametrize("copies", ["two-phase"], indirect=True)
def test_mismatched_two_phase_directory_is_rejected_or_harmless(
    copies: tuple[Place, Place], tmp_path: Path, what: tuple[str, Deed]
) -> None:
    check(copies, tmp_path, *what)


@pytest.mark.parametrize("what", LOG_CASES, ids=case)
def test_mismatched_input_log_is_rejected_or_harmless(
    logged: tuple[Place, Place], tmp_path: Path, what: tuple[str, Deed]
) -> None:
    check(logged, tmp_path, *what)


@pytest.mark.parametrize("copies", ["exactly-once", "two-phase"], indirect=True)
def test_untouched_copy_of_a_file_run_resumes(copies: tuple[Place, Place], tmp_path: Path) -> None:
    place = copies[1].copy(tmp_path.name)
    status, said = end(place)
    assert status == 0, said
    assert place.problem() == ""


def test_untouched_copy_of_a_producer_run_resumes(
    logged: tuple[Place, Place], tmp_path: Path
) -> None:
    place = logged[1].copy(tmp_path.name)
    status, said = end(place)
    assert status == 0, said
    assert place.problem() == ""


FIRST = ["registry", "node-1", "../out/.driftline/barrier-0.mark"]


@pytest.mark.parametrize("made", FIRST)
def test_a_first_start_may_be_killed_at_any_moment(made: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text(i)}) + "\n" for i in range(RECORDS)))
    place = Place(tmp_path / "run", "two-phase", str(source))
    process = place.start()
    wait_until((place.state / made).exists, made)
    kill(process)
    status, said = end(place)
    assert status == 0, said
    assert place.problem() == ""


@pytest.mark.parametrize(
    "policy",
    [
        "exactly-once",
        *(
            pytest.param(each, marks=pytest.mark.soak)
            for each in ("two-phase", "strong-productions")
        ),
    ],
)
def test_run_starts_from_savepoint_and_is_rejected_without_its_state(
    copies: tuple[Place, Place], policy: str, tmp_path: Path
) -> None:
    now = copies[1]
    saved = tmp_path / "saved"
    made = call(
        "savepoint", str(FLOW), "--state", str(now.copy("saved").state), "--output", str(saved)
    )
    assert made.returncode == 0, made.stderr
    time = json.loads((saved / "manifest.json").read_text())["time"]
    place = Place(tmp_path / "run", policy, now.source)
    more = ("--from-snapshot", str(saved))
    status, said = end(place, *more)
    assert status == 0, said
    assert min(json.loads(line)["t"][0] for line in place.lines()) == time
    assert len(place.lines()) == 4 * (RECORDS - time + 1)
    status, said = end(place, *more)
    assert status == 0, said
    assert len(place.lines()) == 4 * (RECORDS - time + 1)
    assert "is empty" not in said, "its records were read before"
    shutil.rmtree(place.state / "node-1")
    status, said = end(place, *more)
    assert (status, str(place.state / "node-1") in said) == (1, True)
