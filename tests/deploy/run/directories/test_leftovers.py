"""Folders of sockets, and drafts: those of whoever lives stay, those of the killed go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep

import pytest

from driftline.deploy.run.directories import leftovers
from driftline.deploy.run.directories.leftovers import socket_folder
from driftline.deploy.zookeeper.ensemble import Ensemble
from tests.zookeepers import make_cluster


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def state(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def deserted(temporary: Path, name: str, age_s: float, file: str = "lock") -> Path:
    folder = temporary / name
    folder.mkdir()
    (folder / file).touch()
    changed = folder.stat().st_mtime - age_s
    os.utime(folder, (changed, changed))
    return folder


def test_a_folder_goes_if_it_is_ours_and_its_run_lives_no_more(
    tmp_path: Path, temporary: Path
) -> None:
    gone = deserted(temporary, "driftline-0123456789ab", 1000)
    kept = {
        deserted(temporary, "driftline-0123456789ac", 1000, "of an earlier version"),
        deserted(temporary, "driftline-0123456789ad", 0),
        deserted(temporary, "driftline-of-a-user", 1000),
        deserted(temporary, "others-0123456789ab", 1000),
    }
    with socket_folder(state(tmp_path, "state")) as folder:
        assert {*temporary.iterdir()} == {*kept, folder}
    assert not gone.exists()
    assert {*temporary.iterdir()} == kept


def test_the_folder_of_a_run_that_lives_stays(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "YOUNG_S", -1.0)
    with (
        socket_folder(state(tmp_path, "one")) as one,
        socket_folder(state(tmp_path, "other")) as other,
    ):
        assert {*temporary.iterdir()} == {one, other}
    assert not list(temporary.iterdir())


def test_the_draft_of_a_process_that_nobody_has_waited_for_goes(tmp_path: Path) -> None:
    ended, living = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    drafts = [tmp_path / f".registry.{each.pid}" for each in (ended, living)]
    for draft in drafts:
        draft.touch()
    ended.kill()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays in the table
    leftovers.clear_drafts(tmp_path)
    assert [draft.exists() for draft in drafts] == [False, True]
    living.kill()
    for each in (ended, living):
        each.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_shows_something_again_and_again_leaves_no_folder(
    number: signal.Signals, tmp_path: Path, temporary: Path, zookeeper: Ensemble
) -> None:
    place = f"{zookeeper.addresses}/{tmp_path.name}"
    make_cluster(place)
    result = tmp_path / "result.json"
    given = ["--zookeeper", place, "--watch", "0.1", "--json", str(result)]
    told = tmp_path / "told"
    with told.open("wb") as file:
        watch = subprocess.Popen(
            [sys.executable, "-m", "driftline", "status", *given],
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=file,
            stderr=subprocess.DEVNULL,
        )
    give_up_at = monotonic() + 60
    while not told.stat().st_size and monotonic() < give_up_at:
        sleep(0.02)
    assert len(list(temporary.iterdir())) == 1, "it has one while it works"
    watch.send_signal(number)
    assert watch.wait(60) == 128 + number
    assert json.loads(result.read_text())["error"] is None, "it is written at each look"
    assert list(temporary.iterdir()) == []
