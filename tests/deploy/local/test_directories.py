"""Every directory of a run, lost, old, of another, cut or damaged: all is right, or refused.

Real runs, killed on their way; then something is done to a directory, and the run goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.local.run_copies import (
    RECORDS,
    Place,
    end,
    interrupted,
    kill,
    received,
    text,
    wait_until,
)


def deleted(path: Path, old: Path) -> None:
    _remove(path)


def restored(path: Path, old: Path) -> None:
    """From an earlier copy."""
    _remove(path)
    shutil.copytree(old, path) if old.is_dir() else shutil.copy(old, path)


def truncated(path: Path, old: Path) -> None:
    """In the middle; at a page of LMDB."""
    file = _largest(path)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 // 4096 * 4096] if len(data) > 9000 else data[:-7])


def flipped(path: Path, old: Path) -> None:
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


Deed = Callable[[Path, Path], None]

CASES: list[tuple[str, Deed]] = [
    *(("state/registry", deed) for deed in (deleted, restored)),
    *(("state/node-0", deed) for deed in (deleted, restored, flipped)),
    *(("out", deed) for deed in (deleted, restored, truncated)),
    ("state", deleted),
]

LOG_CASES: list[tuple[str, Deed]] = [
    *(("state/input-0", deed) for deed in (deleted, restored, flipped)),
]

UNTOUCHED: list[tuple[str, Deed | None]] = [("state", None)]


def case(what: tuple[str, Deed | None]) -> str:
    return f"{what[0].rpartition('/')[2]} {what[1].__name__ if what[1] else 'untouched'}"


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Place]:
    return interrupted(tmp_path_factory.mktemp("run"), "exactly-once")


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Place]:
    return received(tmp_path_factory.mktemp("run"), "exactly-once")


def check(copies: tuple[Place, Place], tmp_path: Path, directory: str, deed: Deed | None) -> None:
    old, now = copies
    place = now.copy(tmp_path.name)
    path = place.root / directory
    if deed is not None:
        deed(path, old.root / directory)
    status, said = end(place)
    assert "Traceback" not in said, said
    if status == 0:
        assert place.problem() == "", said
    else:
        assert deed is not None, said
        # A copy from within the session: what is named may be the directory that it does not fit.
        where = place.root if deed is restored else path
        assert str(where) in said, f"it does not say where: {said}"
        assert " error   run " in said


@pytest.mark.parametrize("what", [*CASES, *UNTOUCHED], ids=case)
def test_a_directory_that_does_not_fit_is_refused_or_changes_nothing(
    copies: tuple[Place, Place], tmp_path: Path, what: tuple[str, Deed | None]
) -> None:
    check(copies, tmp_path, *what)


@pytest.mark.parametrize("what", [*LOG_CASES, *UNTOUCHED], ids=case)
def test_mismatched_input_log_is_rejected_or_harmless(
    logged: tuple[Place, Place], tmp_path: Path, what: tuple[str, Deed | None]
) -> None:
    check(logged, tmp_path, *what)


def test_a_first_start_may_be_killed_before_it_has_decided(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text(i)}) + "\n" for i in range(RECORDS)))
    place = Place(tmp_path / "run", "two-phase", str(source))
    process = place.start()
    wait_until((place.state / "registry").exists, "the registry")
    kill(process)
    status, said = end(place)
    assert status == 0, said
    assert place.problem() == ""
