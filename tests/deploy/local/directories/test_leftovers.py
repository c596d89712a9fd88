"""Leftovers of killed processes: socket folders, drafts, and claims on directories."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from threading import Timer
from unittest.mock import patch

import pytest

from driftline.deploy.local.directories import leftovers
from driftline.deploy.local.directories.leftovers import socket_folder
from driftline.deploy.runtime import claims
from driftline.engine.durable import Lock
from driftline.engine.errors import InUse


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def state(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_next_start_removes_socket_folder_of_a_killed_run(tmp_path: Path, temporary: Path) -> None:
    of_run = state(tmp_path, "state")
    (temporary / "driftline-of-a-user").mkdir()
    with socket_folder(of_run) as killed:
        note = (of_run / "sockets").read_text()
    killed.mkdir()
    (of_run / "sockets").write_text(note)
    with socket_folder(of_run) as one, socket_folder(state(tmp_path, "other")) as other:
        assert {*temporary.iterdir()} == {one, other, temporary / "driftline-of-a-user"}
    assert {*temporary.iterdir()} == {temporary / "driftline-of-a-user"}


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    for name in (f".registry.{os.getpid()}", ".driftline.lock", "registry.1"):
        (tmp_path / name).touch()
    leftovers.clear_drafts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".driftline.lock", "registry.1"]


def test_claim_waits_for_a_process_that_exits_and_fails_if_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    held = Lock(path, "taken")
    with patch.object(claims, "CLAIM_S", 0.0), pytest.raises(InUse, match="in use by another run"):
        claims.claim(path)
    Timer(0.1, held.release).start()
    claims.claim(path).release()
