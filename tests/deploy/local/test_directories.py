"""Each directory of a run, lost, old, foreign, truncated or damaged: the run is right, or refuses.

Real runs are killed, a directory is changed, and the run is resumed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.local.run_copies import (
    RECORDS,
    RunPlace,
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
    """Restore the path from an earlier copy."""
    _remove(path)
    shutil.copytree(old, path) if old.is_dir() else shutil.copy(old, path)


def truncated(path: Path, old: Path) -> None:
    """Truncate the largest file to half, at a page boundary of LMDB."""
    file = _largest(path)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 // 4096 * 4096] if len(data) > 9000 else data[:-7])


def flipped(path: Path, old: Path) -> None:
    """Flip one bit of data in use."""
    file = _largest(path)
    data = bytearray(file.read_bytes())
    data[len(data) * 2 // 5] ^= 4
    file.write_bytes(data)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _largest(path: Path) -> Path:
    """Return the largest data file, never a lock file."""
    if path.is_file():
        return path
    files = [f for f in path.iterdir() if f.suffix in (".mdb", ".jsonl") or "segment" in f.name]
    return max(files, key=lambda file: file.stat().st_size)


Deed = Callable[[Path, Path], None]

CASES: list[tuple[str, Deed]] = [
    *(("state/registry", damage) for damage in (deleted, restored)),
    *(("state/node-0", damage) for damage in (deleted, restored, flipped)),
    *(("out", damage) for damage in (deleted, restored, truncated)),
    ("state", deleted),
]

LOG_CASES: list[tuple[str, Deed]] = [
    *(("state/input-0", damage) for damage in (deleted, restored, flipped)),
]

UNTOUCHED: list[tuple[str, Deed | None]] = [("state", None)]


def case(what: tuple[str, Deed | None]) -> str:
    return f"{what[0].rpartition('/')[2]} {what[1].__name__ if what[1] else 'untouched'}"


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunPlace, RunPlace]:
    return interrupted(tmp_path_factory.mktemp("run"), "exactly-once")


@pytest.fixture(scope="module")
def received_copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunPlace, RunPlace]:
    return received(tmp_path_factory.mktemp("run"), "exactly-once")


def check(
    copies: tuple[RunPlace, RunPlace], tmp_path: Path, directory: str, damage: Deed | None
) -> None:
    old, now = copies
    place = now.copy(tmp_path.name)
    path = place.root / directory
    if damage is not None:
        damage(path, old.root / directory)
    status, log_text = end(place)
    assert "Traceback" not in log_text, log_text
    if status == 0:
        assert place.problem() == "", log_text
    else:
        assert damage is not None, log_text
        # Both copies are of one session: the error may name either of the directories that do not
        # fit.
        where = place.root if damage is restored else path
        assert str(where) in log_text, f"it does not say where: {log_text}"
        assert " error   run " in log_text


@pytest.mark.parametrize("what", [*CASES, *UNTOUCHED], ids=case)
def test_mismatched_directory_is_rejected_or_harmless(
    copies: tuple[RunPlace, RunPlace], tmp_path: Path, what: tuple[str, Deed | None]
) -> None:
    check(copies, tmp_path, *what)


@pytest.mark.parametrize("what", [*LOG_CASES, *UNTOUCHED], ids=case)
def test_mismatched_input_log_is_rejected_or_harmless(
    received_copies: tuple[RunPlace, RunPlace], tmp_path: Path, what: tuple[str, Deed | None]
) -> None:
    check(received_copies, tmp_path, *what)


def test_first_start_killed_before_its_first_decision_can_be_repeated(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text(i)}) + "\n" for i in range(RECORDS)))
    place = RunPlace(tmp_path / "run", "two-phase", str(source))
    process = place.start()
    wait_until((place.state / "registry").exists, "the registry")
    kill(process)
    status, log_text = end(place)
    assert status == 0, log_text
    assert place.problem() == ""
