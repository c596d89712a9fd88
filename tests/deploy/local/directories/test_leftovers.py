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

from driftline.deploy.local.directories import leftovers
from driftline.deploy.local.directories.leftovers import socket_folder
from tests.zookeepers import Ensemble, make_cluster


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def state(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_the_folder_of_a_killed_run_goes_at_the_next_start(tmp_path: Path, temporary: Path) -> None:
    of_run = state(tmp_path, "state")
    (temporary / "driftline-of-a-user").mkdir()
    with socket_folder(of_run) as killed:
        note = (of_run / "sockets").read_text()
    killed.mkdir()
    (of_run / "sockets").write_text(note)
    with socket_folder(of_run) as one, socket_folder(state(tmp_path, "other")) as other:
        assert {*temporary.iterdir()} == {one, other, temporary / "driftline-of-a-user"}
    assert {*temporary.iterdir()} == {temporary / "driftline-of-a-user"}


def test_drafts_of_killed_processes_go(tmp_path: Path) -> None:
    for name in (f".registry.{os.getpid()}", ".driftline.lock", "registry.1"):
        (tmp_path / name).touch()
    leftovers.clear_drafts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".driftline.lock", "registry.1"]


def test_interrupted_watch_command_leaves_no_socket_folder(
    tmp_path: Path, temporary: Path, zookeeper: Ensemble
) -> None:
    number = signal.SIGTERM
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
